//! What carries frames between masters.

/// What went wrong; in words, with what can be done about it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TransportError(pub String);

/// A result of a transport.
pub type Result<T> = std::result::Result<T, TransportError>;

/// Carries frames between masters, those of a pair in order. Used by one thread.
pub trait Transport {
    /// Which of them this is, from 0.
    fn node(&self) -> u32;

    /// How many there are.
    fn nodes(&self) -> u32;

    /// Sends a frame. Never waits for the receiver.
    ///
    /// # Errors
    /// The connection is broken.
    fn send(&mut self, to: u32, frame: Vec<u8>) -> Result<()>;

    /// Takes in what has come; whether anything has. Never waits.
    ///
    /// # Errors
    /// The connection is broken.
    fn receive(&mut self, take: &mut dyn FnMut(u32, Vec<u8>)) -> Result<bool>;

    /// Bytes that are on their way, or wait for it.
    fn unsent(&self) -> usize;

    /// The end, which all come to.
    fn finish(&mut self);
}

/// Masters that are threads of one process, for tests.
#[cfg(test)]
pub mod threads {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::{Result, Transport};

    pub struct Threads {
        node: u32,
        to: Vec<Sender<(u32, Vec<u8>)>>,
        from: Receiver<(u32, Vec<u8>)>,
    }

    pub fn connected(nodes: u32) -> Vec<Threads> {
        let (to, from): (Vec<_>, Vec<_>) = (0..nodes).map(|_| channel()).unzip();
        from.into_iter().zip(0..).map(|(from, node)| Threads { node, to: to.clone(), from }).collect()
    }

    impl Transport for Threads {
        fn node(&self) -> u32 {
            self.node
        }

        fn nodes(&self) -> u32 {
            self.to.len() as u32
        }

        fn send(&mut self, to: u32, frame: Vec<u8>) -> Result<()> {
            // Who has gone hears nothing.
            let _ = self.to[to as usize].send((self.node, frame));
            Ok(())
        }

        fn receive(&mut self, take: &mut dyn FnMut(u32, Vec<u8>)) -> Result<bool> {
            let mut any = false;
            while let Ok((from, frame)) = self.from.try_recv() {
                take(from, frame);
                any = true;
            }
            Ok(any)
        }

        fn unsent(&self) -> usize {
            0
        }

        fn finish(&mut self) {}
    }
}
