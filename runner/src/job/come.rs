//! Parts that come while the job runs: of a list on standard input that is read as it is written.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::listen::Message;
use super::{Job, Window};
use crate::exit::Ending;
use crate::launch::{Came, Launch};
use crate::residency::Event;

/// Begins to read, if there is such a list.
pub(super) fn start(launch: &mut Launch, sender: &Sender<Message>) -> Result<Option<Arc<Window>>, Ending> {
    let Some(rest) = launch.take_rest() else { return Ok(None) };
    let (window, sender) = (Window::new(), sender.clone());
    let tell = move |came| {
        // Nobody to hear it: the job has ended.
        let _ = sender.send(Message::Came(came));
    };
    rest.read(Arc::clone(&window), tell)
        .map_err(|error| Ending::Setup(format!("cannot start a thread: {error}")))?;
    Ok(Some(window))
}

impl Job<'_> {
    /// Parts were read.
    pub(super) fn came(&mut self, came: Came) {
        let more = matches!(came, Came::Lines(_));
        let taken = match came {
            Came::Lines(lines) => self.setup.launch.add(lines),
            Came::End(Some(error)) => Err(Ending::Setup(error.to_string())),
            Came::End(None) => Ok(()),
        };
        if !more {
            self.coming = None;
        }
        match taken {
            Ok(()) => self.events.push(Event::Came { ranks: self.np(), more }),
            Err(ending) => self.end(ending),
        }
    }
}
