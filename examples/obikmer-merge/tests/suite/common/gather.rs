//! A window that takes what a cutter finds, whole.

use std::convert::Infallible;

use obikmer_merge::superkmer::cut::Sink;
use obikmer_merge::superkmer::window::Window;

pub struct Gather(pub Window);

impl Sink for Gather {
    type Error = Infallible;

    fn run(&mut self, codes: &[u8]) {
        self.0.run(codes);
    }

    fn super_kmer(&mut self, virtual_partition: usize, first: usize, header: u16) {
        self.0.super_kmer(virtual_partition, first, header);
    }

    fn slice_done(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
