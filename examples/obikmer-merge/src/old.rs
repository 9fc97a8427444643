//! `--add`: the layers that are there already. Their k-mers get the new sources; only what none of them has
//! goes into the new layer.

use std::collections::HashSet;
use std::path::Path;

use bdrun_worker::Communicator;

use crate::error::{Context, Error, Result};
use crate::exchange::{Outgoing, exchange};
use crate::graph::{Mixer, Record};
use crate::index::Index;
use crate::layer::format::{Kind, Place, Wrote};
use crate::layer::unitigs::{Unitigs, Written};
use crate::layer::{Ids, KINDS, Layer, Runs, path, write_sources};
use crate::sequence::kmer::{Lengths, Oriented};
use crate::sequence::minimizer::{Partitions, owner};
use crate::sequence::packed;
use crate::sequence::word::Word;
use crate::sets::Sets;
use crate::summary::Share;
use crate::superkmer::frequent::Frequent;
use crate::superkmer::store::{Store, each_kmer};
use crate::superkmer::stretches::Stretches;
use crate::superkmer::window::{SECTION, Section};

/// The layers of one partition, with the sets of their k-mers opened up.
pub struct Old<W> {
    layers: Vec<(Layer<W>, Vec<u32>)>,
    sets: Sets,
    place: Place,
    /// As the index knows them, if there is one.
    ids: Vec<Ids>,
}

impl<W: Word> Old<W> {
    /// Open the first `count` layers, which know so many sources; if they are those of an index, as it knows
    /// them.
    pub fn open(
        dir: &Path,
        count: usize,
        place: Place,
        sources: usize,
        index: Option<&Index>,
    ) -> Result<Self> {
        let mut sets = Sets::default();
        let (mut layers, mut known) = (Vec::new(), Vec::new());
        for layer in 0..count {
            let ids = index.map(|index| index.ids(layer, place.partition));
            known.extend(ids);
            let layer = Layer::open(dir, layer, place, ids)?;
            let by_position = layer.expand(&mut sets, sources)?;
            layers.push((layer, by_position));
        }
        Ok(Self { layers, sets, place, ids: known })
    }

    /// If an owned k-mer is in one of the layers: it has this source too.
    #[inline]
    fn absorb(&mut self, kmer: W, source: u32) -> bool {
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

    /// What the new layer's graph is made of: the super-k-mers without the k-mers that old layers have, which
    /// get the new sources instead; ghosts that their owners have in old layers are left out too. Two
    /// exchanges; all ranks know of an outer error.
    pub fn filter(
        &mut self,
        comm: &Communicator,
        lengths: Lengths,
        partitions: Partitions,
        store: Store,
    ) -> Result<Result<Store>> {
        let (size, k) = (comm.size(), lengths.k);
        let mut ghosts: Vec<(u32, W)> = Vec::new();
        let mut result = Ok(());
        let mut new = store.like();
        let store = store.sorted();
        let (mut frequent, mut stretches) = (Frequent::<W>::default(), Stretches::default());
        for sub in 0..partitions.subs() {
            let mut sections = Sections::new(sub);
            store.drain(sub, &mut frequent, |source, record| {
                stretches.clear();
                each_kmer(record, k, |kmer: Oriented<W>, owned| {
                    if !owned {
                        ghosts.push((owner(kmer.canonical(), lengths, size) as u32, kmer.canonical()));
                    }
                    stretches.next(!(owned && self.absorb(kmer.canonical(), source)));
                });
                sections.write(source, record, k, &stretches);
            });
            result = result.and_then(|()| sections.give(&mut new));
        }
        drop(store);
        ghosts.sort_unstable();
        ghosts.dedup();
        let gone = self.ghosts_gone(comm, &ghosts, result)?;
        let mut last = new.like();
        let new = new.sorted();
        let mut result = Ok(());
        for sub in 0..partitions.subs() {
            let mut sections = Sections::new(sub);
            new.drain(sub, &mut frequent, |source, record| {
                stretches.clear();
                each_kmer(record, k, |kmer: Oriented<W>, owned| {
                    stretches.next(owned || !gone.contains(&kmer.canonical()));
                });
                sections.write(source, record, k, &stretches);
            });
            result = result.and_then(|()| sections.give(&mut last));
        }
        Ok(result.map(|()| last))
    }

    /// Those of the ghosts, which are sorted by owner, that their owners have in old layers.
    fn ghosts_gone(
        &self,
        comm: &Communicator,
        ghosts: &[(u32, W)],
        state: Result<()>,
    ) -> Result<HashSet<W, Mixer>> {
        let size = comm.size();
        let questions = state.map(|()| {
            let mut out = Outgoing::new(size);
            for (rank, kmer) in ghosts {
                out.to(*rank as usize).extend_from_slice(bytemuck::cast_slice(bytemuck::bytes_of(kmer)));
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
        let mut gone = HashSet::default();
        for &(_, kmer) in ghosts {
            match answered.next() {
                Some(1) => _ = gone.insert(kmer),
                Some(_) => {}
                None => return Err(Error::Internal("a question about a ghost was not answered".into())),
            }
        }
        Ok(gone)
    }

    /// Write the sources of the old layers anew into `dir`, and count everything in them.
    pub fn write(self, dir: &Path, sources: usize, share: &mut Share) -> Result<()> {
        for (number, (layer, by_position)) in self.layers.into_iter().enumerate() {
            let mut runs = Runs::default();
            layer.for_each_kmer(|at, _, _| runs.push(at, by_position[at as usize]))?;
            let kmers_id = layer.kmers_id();
            // The mapped file stays what it was: the new one takes its name.
            drop(layer);
            let partition = self.place.partition;
            let sources_path = path(dir, number, partition, Kind::Sources);
            std::fs::remove_file(&sources_path)
                .context(|| format!("cannot replace {}", sources_path.display()))?;
            let wrote = write_sources(&sources_path, self.place, &runs, &self.sets)?;
            share.add_file(number, Kind::Sources, wrote);
            share.add_kmers(&runs, &self.sets, sources);
            let unitigs = Unitigs::open(dir, number, self.place, self.ids.get(number))?;
            let bytes = |kind| {
                let path = path(dir, number, partition, kind);
                std::fs::metadata(&path)
                    .map(|m| m.len())
                    .context(|| format!("cannot read {}", path.display()))
            };
            let written = Written {
                file: Wrote { bytes: bytes(Kind::Unitigs)?, id: unitigs.id() },
                unitigs: unitigs.count()? as u64,
                cyclic: unitigs.cyclic() as u64,
                bases: unitigs.bases()?,
            };
            share.add_unitigs(number, written);
            share.add_file(number, Kind::Kmers, Wrote { bytes: bytes(Kind::Kmers)?, id: kmers_id });
        }
        Ok(())
    }
}

/// Bytes of sections that are given to the store together: how many a section has is counted in 32 bits.
const TOGETHER: usize = 64 << 20;

/// Sections of one virtual partition, as they would come in messages.
struct Sections {
    sub: u16,
    most: usize,
    /// Messages that are as long as they become.
    full: Vec<Vec<u8>>,
    bytes: Vec<u8>,
    /// The open one: its source, and where it begins.
    open: Option<(u32, usize)>,
}

impl Sections {
    fn new(sub: usize) -> Self {
        Self { sub: sub as u16, most: TOGETHER, full: Vec::new(), bytes: Vec::new(), open: None }
    }

    /// Where the next super-k-mer of a source goes.
    fn of(&mut self, source: u32) -> &mut Vec<u8> {
        if self.open.is_none_or(|(open, _)| open != source) {
            self.close();
            self.open = Some((source, self.bytes.len()));
            self.bytes.extend([0; SECTION]);
        }
        &mut self.bytes
    }

    fn close(&mut self) {
        if let Some((source, at)) = self.open.take() {
            let len = (self.bytes.len() - at - SECTION) as u32;
            self.bytes[at..at + SECTION].copy_from_slice(&Section { source, len, sub: self.sub }.to_bytes());
        }
    }

    /// What stays of a super-k-mer of a source.
    fn write(&mut self, source: u32, record: Record<'_>, k: usize, stretches: &Stretches) {
        for (kmers, flags) in stretches.of(record.flags) {
            let bytes = self.of(source);
            bytes.extend((kmers.len() as u16 | flags).to_le_bytes());
            packed::copy(record.bases, kmers.start, kmers.len() + k - 1, bytes);
            if bytes.len() >= self.most {
                self.close();
                self.full.push(std::mem::take(&mut self.bytes));
            }
        }
    }

    fn give(mut self, store: &mut Store) -> Result<()> {
        self.close();
        self.full.push(self.bytes);
        self.full.into_iter().try_for_each(|bytes| {
            let len = bytes.len();
            store.add(bytes, &[len], 0)
        })
    }
}

/// Give the files of a partition's old layers a second name in the new directory.
pub fn link(from: &Path, to: &Path, layers: usize, partition: usize) -> Result<()> {
    for layer in 0..layers {
        for kind in KINDS {
            let (old, new) = (path(from, layer, partition, kind), path(to, layer, partition, kind));
            // Some file systems have no hard links.
            std::fs::hard_link(&old, &new)
                .or_else(|_| std::fs::copy(&old, &new).map(|_| ()))
                .context(|| format!("cannot copy {} to {}", old.display(), new.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However little is given together, the store has the same in the same order.
    #[test]
    fn sections_are_cut_where_they_become_long() {
        let k = 5;
        let kept = |most| {
            let (mut sections, mut stretches) = (Sections { most, ..Sections::new(0) }, Stretches::default());
            for number in 0..40u32 {
                let kmers = 1 + number as usize % 9;
                stretches.clear();
                (0..kmers).for_each(|at| stretches.next(number % 4 > 0 || at != 2));
                let bases = vec![number as u8; packed::bytes_for(kmers + k - 1)];
                let record = Record { flags: 0, kmers, bases: &bases };
                sections.write(number / 15, record, k, &stretches);
            }
            let (messages, mut store) = (sections.full.len() + 1, Store::new(k, 3, 1));
            sections.give(&mut store).expect("kept");
            let mut all = Vec::new();
            store.sorted().drain(0, &mut Frequent::<u64>::default(), |source, record| {
                all.push((source, record.kmers, record.bases.to_vec()));
            });
            (all, messages)
        };
        let (whole, one) = kept(TOGETHER);
        assert_eq!(one, 1);
        for most in [1, 20, 100] {
            let (parts, messages) = kept(most);
            assert!(parts == whole && messages > 2, "{most}: {messages}");
        }
    }
}
