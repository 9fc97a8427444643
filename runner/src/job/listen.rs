//! The threads that listen while the job's thread sleeps: to the bell in the segment, and to the control
//! sockets.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use bdrun_ipc::segment::Segment;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::attach::Asked;
use crate::holder::Report;
use crate::launch::Came;
use crate::measure::Measured;
use crate::nodes::Told;
use crate::supervisor::Happening;

/// How often the bell's thread looks whether it is still needed, should a ring be missed.
const PATIENCE: Duration = Duration::from_secs(2);

/// In the place of a rank: the threads are to end.
const STOP: u64 = u64::MAX;

/// What comes into the job's channel.
pub(super) enum Message {
    /// Some rank has rung; the bitmap says which.
    Bell,
    /// A rank's control socket has something to read.
    Control(u32),
    /// Parts were read.
    Came(Came),
    /// What independent ranks hold.
    Measured(Measured),
    /// What became of an order to an independent rank, in this try of it.
    Holder(u32, u32, Report),
    /// Something happened to a process.
    Supervisor(Happening),
    /// Somebody looks at the job.
    Asked(Asked),
    /// Something is said by the masters of other nodes.
    Nodes(Told),
    /// The journal cannot be written: why.
    JournalFailed(String),
}

impl From<Happening> for Message {
    fn from(happening: Happening) -> Self {
        Self::Supervisor(happening)
    }
}

impl From<Asked> for Message {
    fn from(asked: Asked) -> Self {
        Self::Asked(asked)
    }
}

impl From<Measured> for Message {
    fn from(measured: Measured) -> Self {
        Self::Measured(measured)
    }
}

/// The two threads.
pub(super) struct Listeners {
    epoll: Arc<Epoll>,
    wake: EventFd,
    stop: Arc<AtomicBool>,
    segment: Arc<Segment>,
    threads: Vec<JoinHandle<()>>,
}

impl Listeners {
    pub fn start(segment: Arc<Segment>, sender: Sender<Message>) -> std::io::Result<Self> {
        let epoll = Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).stack_size(128 << 10).spawn(body)
        };
        let bell = {
            let (segment, stop, sender) = (segment.clone(), stop.clone(), sender.clone());
            thread(
                "bell",
                Box::new(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if segment.header().bell.wait(PATIENCE) && sender.send(Message::Bell).is_err() {
                            return;
                        }
                    }
                }),
            )?
        };
        let control = {
            let epoll = epoll.clone();
            thread(
                "control",
                Box::new(move || {
                    let mut ready = [EpollEvent::empty(); 64];
                    loop {
                        // Interrupted: wait again.
                        let count = epoll.wait(&mut ready, EpollTimeout::NONE).unwrap_or(0);
                        for event in &ready[..count] {
                            if event.data() == STOP
                                || sender.send(Message::Control(event.data() as u32)).is_err()
                            {
                                return;
                            }
                        }
                    }
                }),
            )?
        };
        Ok(Self { epoll, wake, stop, segment, threads: vec![bell, control] })
    }

    /// Listen to a rank's socket, which is reported once for each time something comes in.
    pub fn add(&self, rank: u32, socket: BorrowedFd<'_>) -> nix::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        self.epoll.add(socket, EpollEvent::new(flags, u64::from(rank)))
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.segment.header().bell.ring();
        // The counter cannot overflow with one write.
        let _ = self.wake.write(1);
        for thread in self.threads.drain(..) {
            // A panic there has been printed; there is nothing left to save.
            let _ = thread.join();
        }
    }
}
