//! How the threads of the master tell the one that decides: a message, and a ring of the bell that ranks ring
//! too. So that thread sleeps in one place, and nothing stands between a rank and it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use bdrun_ipc::segment::Segment;

/// Where messages are left.
pub struct Post<M> {
    sender: Sender<M>,
    /// None: whoever reads sleeps on the channel.
    bell: Option<Arc<Segment>>,
}

impl<M> Clone for Post<M> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), bell: self.bell.clone() }
    }
}

impl<M> From<Sender<M>> for Post<M> {
    fn from(sender: Sender<M>) -> Self {
        Self { sender, bell: None }
    }
}

impl<M> Post<M> {
    /// Leave a message. False: nobody will read it.
    pub fn leave(&self, message: M) -> bool {
        let left = self.sender.send(message).is_ok();
        if let Some(segment) = &self.bell {
            segment.header().bell.ring();
        }
        left
    }
}

/// Where they are read, by one thread.
pub struct Letters<M> {
    messages: Receiver<M>,
    segment: Arc<Segment>,
}

/// What has come.
pub struct News<M> {
    /// Some rank may have rung: the bitmap says which.
    pub rung: bool,
    /// In the order in which they were left.
    pub messages: Vec<M>,
    /// Nobody is left who could leave another message.
    pub last: bool,
}

impl<M> Letters<M> {
    /// Sleep until there is something, at most for `timeout`.
    pub fn wait(&self, timeout: Duration) -> News<M> {
        let rung = self.segment.header().bell.wait(timeout);
        let mut news = News { rung, messages: Vec::new(), last: false };
        loop {
            match self.messages.try_recv() {
                Ok(message) => news.messages.push(message),
                Err(end) => {
                    news.last = end == TryRecvError::Disconnected;
                    return news;
                }
            }
        }
    }
    /// The next message; what ranks ring for waits.
    ///
    /// # Errors
    /// None came in this time, or none will.
    pub fn next(&self, timeout: Duration) -> Result<M, RecvTimeoutError> {
        let until = Instant::now() + timeout;
        loop {
            match self.messages.try_recv() {
                Ok(message) => return Ok(message),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RecvTimeoutError::Timeout);
            }
            self.segment.header().bell.wait(left);
        }
    }
}

/// Both ends, by the bell of this segment.
pub fn post<M>(segment: Arc<Segment>) -> (Post<M>, Letters<M>) {
    let (sender, messages) = channel();
    (Post { sender, bell: Some(segment.clone()) }, Letters { messages, segment })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Were one ring not heard, the reader would sleep for its whole patience.
    #[test]
    fn who_leaves_a_message_wakes_the_reader() {
        const EACH: u32 = 20_000;
        let segment = Arc::new(Segment::create(4, 1 << 20, 1 << 18, 2).unwrap());
        let (post, letters) = post::<u32>(segment.clone());
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let (post, segment) = (post.clone(), segment.clone());
                std::thread::spawn(move || {
                    for n in 0..EACH {
                        if n % 3 == 0 {
                            segment.ring(thread);
                        }
                        assert!(post.leave(n));
                        if n % 64 == 0 {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        drop(post);
        let (mut count, mut rings) = (0, 0);
        while count < 2 * EACH {
            let news = letters.wait(Duration::from_secs(3600));
            count += news.messages.len() as u32;
            rings += if news.rung { segment.attention().take().count() } else { 0 };
            assert!(!news.last || count == 2 * EACH);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(rings + segment.attention().take().count() > 0);
        assert_eq!(letters.next(Duration::from_secs(3600)), Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn what_comes_late_is_not_waited_for() {
        let segment = Arc::new(Segment::create(4, 1 << 20, 1 << 18, 2).unwrap());
        let (post, letters) = post::<u32>(segment.clone());
        assert!(!letters.wait(Duration::from_millis(1)).rung);
        assert_eq!(letters.next(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
        segment.ring(2);
        assert!(letters.wait(Duration::from_secs(3600)).rung);
        post.leave(7);
        assert_eq!(letters.next(Duration::from_secs(3600)), Ok(7));
    }
}
