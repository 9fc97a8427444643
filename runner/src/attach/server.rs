//! The thread that listens, and hands questions to the job.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::{Answer, Question, VERSION};
use crate::post::Post;

/// So long a question may take to come, and its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// So long the job may take to answer: on a busy machine it may have to wait for a processor.
const THOUGHT: Duration = Duration::from_secs(30);

/// A question is no longer.
const LONGEST: u64 = 4096;

/// Somebody has asked something.
pub struct Asked {
    /// What.
    pub question: Question,
    /// Where the answer goes; nobody may be there any more.
    pub reply: SyncSender<Answer>,
}

/// The socket of a job.
pub fn address(uid: u32, pid: u32) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("bdrun/{uid}/{pid}"))
}

/// Listens until it is dropped.
pub struct Server {
    stop: Arc<AtomicBool>,
    address: SocketAddr,
}

impl Server {
    /// Begins to listen. `post` takes the questions.
    ///
    /// # Errors
    /// If there can be no socket or thread.
    pub fn start<M: From<Asked> + Send + 'static>(post: Post<M>) -> std::io::Result<Self> {
        let address = address(nix::unistd::geteuid().as_raw(), std::process::id())?;
        let listener = UnixListener::bind_addr(&address)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let listen = move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                // Whoever asks wrongly, or goes away, gets no answer.
                let answered = stream.and_then(|stream| answer(&stream, &post));
                if let Ok(false) = answered {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("attach".into()).stack_size(128 << 10).spawn(listen)?;
        Ok(Self { stop, address })
    }
}

/// Answers one question; whether the job is still there.
fn answer<M: From<Asked>>(stream: &UnixStream, post: &Post<M>) -> std::io::Result<bool> {
    let peer = getsockopt(&stream.as_fd(), PeerCredentials)?.uid();
    if peer != 0 && peer != nix::unistd::geteuid().as_raw() {
        return Ok(true);
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
    let question: Question = serde_json::from_str(&line)?;
    if question.version != VERSION {
        return Ok(true);
    }
    let (reply, answers) = sync_channel(1);
    if !post.leave(Asked { question, reply }.into()) {
        return Ok(false);
    }
    if let Ok(answer) = answers.recv_timeout(THOUGHT) {
        let mut bytes = serde_json::to_vec(&answer)?;
        bytes.push(b'\n');
        (&mut &*stream).write_all(&bytes)?;
    }
    Ok(true)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // So that it looks. Nobody waits for it: it may be in the middle of an answer.
        let _ = UnixStream::connect_addr(&self.address);
    }
}
