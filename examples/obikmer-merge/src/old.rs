//! `--add`: the layers that are there already. Their k-mers get the new sources; only what none of them has goes into
//! the new layer.

use std::path::Path;

use bdrun_worker::Communicator;

use crate::error::{Context, Error, Result};
use crate::exchange::{Outgoing, exchange};
use crate::format::{Kind, Place};
use crate::graph::Graph;
use crate::kmer::Lengths;
use crate::layer::{Layer, Runs, path, write_sources};
use crate::minimizer::owner;
use crate::sets::Sets;
use crate::summary::Share;
use crate::unitigs::{Unitigs, Written};
use crate::word::Word;

/// The layers of one partition, with the sets of their k-mers opened up.
pub struct Old<W> {
    layers: Vec<(Layer<W>, Vec<u32>)>,
    sets: Sets,
    place: Place,
}

impl<W: Word> Old<W> {
    /// Open the first `count` layers.
    pub fn open(dir: &Path, count: usize, place: Place) -> Result<Self> {
        let mut sets = Sets::default();
        let mut layers = Vec::new();
        for layer in 0..count {
            let layer = Layer::open(dir, layer, place)?;
            let by_position = layer.expand(&mut sets)?;
            layers.push((layer, by_position));
        }
        Ok(Self { layers, sets, place })
    }

    /// If an owned k-mer is in one of the layers: it has this source too.
    #[inline]
    pub fn absorb(&mut self, kmer: W, source: u32) -> bool {
        for (layer, sets) in &mut self.layers {
            if let Some(at) = layer.position(kmer) {
                let set = &mut sets[at as usize];
                *set = self.sets.with(*set, source);
                return true;
            }
        }
        false
    }

    fn has(&self, kmer: W) -> bool {
        self.layers.iter().any(|(layer, _)| layer.position(kmer).is_some())
    }

    /// Take out of the graph the ghosts that their owners have in old layers: two exchanges.
    pub fn remove_ghosts(
        &self,
        comm: &Communicator,
        lengths: Lengths,
        graph: &mut impl Graph<W>,
        state: Result<()>,
    ) -> Result<()> {
        let size = comm.size();
        let mut ghosts: Vec<(u32, W)> = Vec::new();
        graph.ghosts(&mut |kmer| ghosts.push((owner(kmer, lengths, size) as u32, kmer)));
        ghosts.sort_unstable();
        let questions = state.map(|()| {
            let mut out = Outgoing::new(size);
            for &(rank, kmer) in &ghosts {
                out.to(rank as usize).extend_from_slice(bytemuck::cast_slice(bytemuck::bytes_of(&kmer)));
            }
            out
        });
        let questions = exchange(comm, questions)?;
        let mut answers = Outgoing::new(size);
        for rank in 0..size {
            let asked = questions.from(rank).chunks_exact(size_of::<W>() / 4);
            answers.to(rank).extend(
                asked.map(|q| u32::from(self.has(bytemuck::pod_read_unaligned(bytemuck::cast_slice(q))))),
            );
        }
        let answers = exchange(comm, Ok(answers))?;
        let mut answered = (0..size).flat_map(|rank| answers.from(rank));
        for (_, kmer) in ghosts {
            match answered.next() {
                Some(1) => graph.remove(kmer),
                Some(_) => {}
                None => return Err(Error::Internal("a question about a ghost was not answered".into())),
            }
        }
        Ok(())
    }

    /// Write the sources of the old layers anew into `dir`, and count everything in them.
    pub fn write(self, dir: &Path, sources: usize, share: &mut Share) -> Result<()> {
        for (number, (layer, by_position)) in self.layers.into_iter().enumerate() {
            let mut runs = Runs::default();
            layer.for_each_kmer(|at, _, _| runs.push(at, by_position[at as usize]))?;
            // The mapped file stays what it was: the new one takes its name.
            drop(layer);
            let partition = self.place.partition;
            let sources_path = path(dir, number, partition, Kind::Sources);
            std::fs::remove_file(&sources_path)
                .context(|| format!("cannot replace {}", sources_path.display()))?;
            share.add_bytes(write_sources(&sources_path, self.place, &runs, &self.sets)?);
            share.add_kmers(&runs, &self.sets, sources);
            let unitigs = Unitigs::open(dir, number, self.place)?;
            let bytes = |kind| {
                let path = path(dir, number, partition, kind);
                std::fs::metadata(&path)
                    .map(|m| m.len())
                    .context(|| format!("cannot read {}", path.display()))
            };
            share.add_unitigs(Written {
                bytes: bytes(Kind::Unitigs)?,
                unitigs: unitigs.count()? as u64,
                cyclic: unitigs.cyclic() as u64,
                bases: unitigs.bases()?,
            });
            share.add_bytes(bytes(Kind::Kmers)?);
        }
        Ok(())
    }
}

/// Give the files of a partition's old layers a second name in the new directory.
pub fn link(from: &Path, to: &Path, layers: usize, partition: usize) -> Result<()> {
    for layer in 0..layers {
        for kind in [Kind::Kmers, Kind::Sources, Kind::Unitigs] {
            let (old, new) = (path(from, layer, partition, kind), path(to, layer, partition, kind));
            // Some file systems have no hard links.
            std::fs::hard_link(&old, &new)
                .or_else(|_| std::fs::copy(&old, &new).map(|_| ()))
                .context(|| format!("cannot copy {} to {}", old.display(), new.display()))?;
        }
    }
    Ok(())
}
