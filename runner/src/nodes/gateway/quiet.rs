//! Whether anything goes on at any node, which the first master asks the others.

use std::time::{Duration, Instant};

use bdrun_ipc::far;

use super::{Gateway, PROBE, Peer, Told};
use crate::nodes::frame::{Frame, Probed};
use crate::nodes::transport::{Result, Transport};

impl<T: Transport> Gateway<T> {
    pub(super) fn probed(&self, round: u64) -> Probed {
        let idle =
            |peer: &Peer| peer.leaving.is_empty() && peer.assembling.is_none() && peer.coming.is_empty();
        let told = far::is_any_told(&self.segment) || self.segment.outward().is_any();
        let quiet = !self.is_broken
            && self.shared.is_quiet()
            && !told
            && self.peers.iter().all(idle)
            && self.asked.is_empty()
            && self.giving.is_idle()
            && self.early.is_empty()
            && self.book.is_quiet();
        Probed { round, quiet, sent: self.sent, came: self.came }
    }

    /// Nobody elsewhere waits for anything any more. Until then the first master asks, also when its own
    /// ranks are over: those of others may wait for each other.
    fn is_left_alone(&self) -> bool {
        let is_over = |node: u32| self.peers[node as usize].said_bye;
        self.said_last.is_some() || (self.said_bye && self.others().all(is_over))
    }

    /// By the first master: if twice in turn all are quiet, and nothing was on its way, nor was sent between
    /// the two, nothing goes on anywhere (Mattern's four counters).
    pub(super) fn probe(&mut self) -> Result<()> {
        if self.spread.node != 0 || self.is_left_alone() || !self.shared.is_quiet() {
            self.before = None;
            return Ok(());
        }
        if self.answers.len() + 1 == self.spread.nodes as usize {
            let own = self.probed(self.round);
            let all = || self.answers.values().chain([&own]);
            let sums = (all().map(|p| p.sent).sum::<u64>(), all().map(|p| p.came).sum::<u64>());
            let quiet = all().all(|p| p.quiet) && sums.0 == sums.1;
            let again = quiet && self.before == Some(sums);
            self.before = quiet.then_some(sums);
            self.answers.clear();
            self.round += 1;
            self.next_probe = Instant::now() + PROBE;
            if again {
                self.before = None;
                self.tell_all(&Frame::Settled)?;
                (self.tell)(Told::Settled);
            }
        } else if Instant::now() >= self.next_probe && self.answers.is_empty() {
            self.next_probe = Instant::now() + Duration::from_secs(1);
            self.tell_all(&Frame::Probe(self.round))?;
        }
        Ok(())
    }
}
