//! The unitigs with the links between them: as FASTA in BCALM's manner, and as GFA 1.

use std::io::Write;
use std::path::Path;

use super::links::{End, Ends, Links};
use super::{full, push_letters, writing};
use crate::error::{Context, Error, Result};
use crate::index::Index;
use crate::sequence::packed::Text;

/// Bytes of memory for links that are being found.
pub const MEMORY: usize = 64 << 20;

/// The compacted graph of an index. Unitigs have the numbers of their order in it, from 0 on.
pub struct Graph {
    index: Index,
    memory: usize,
}

impl Graph {
    /// Of an index; links are found in about so many bytes of memory.
    ///
    /// # Errors
    /// It is no index, or one of several layers: unitigs are those of each layer, and the graph of all of
    /// them would be cut where layers meet.
    pub fn open(dir: &Path, memory: usize) -> Result<Self> {
        let index = Index::open(dir)?;
        if index.meta.layers > 1 {
            let what = format!(
                "has {} layers (--add), and unitigs of each: merge it into one that has the unitigs of the whole \
                 graph: obikmer-merge --out NEW {}",
                index.meta.layers,
                dir.display()
            );
            return Err(Error::Index { path: dir.to_path_buf(), what });
        }
        Ok(Self { index, memory })
    }

    /// Every unitig with its number, in order.
    fn for_each(&self, mut each: impl FnMut(u64, Text<'_>) -> Result<()>) -> Result<()> {
        let mut number = 0;
        for partition in 0..self.index.meta.partitions {
            self.index.unitigs(0, partition)?.for_each(|text| {
                number += 1;
                each(number - 1, text)
            })?;
        }
        Ok(())
    }

    fn links(&self) -> Result<Links> {
        let mut count = 0;
        for partition in 0..self.index.meta.partitions {
            count += self.index.unitigs(0, partition)?.count()? as u64;
        }
        let mut ends = Ends::new(self.index.meta.k, count, self.memory);
        self.for_each(|unitig, text| ends.add(unitig, text))?;
        ends.links()
    }

    /// FASTA: in a unitig's header its number, `LN:i:` with its length, and for each link
    /// `L:<its own direction>:<number>:<the other's direction>`, each link at both of its unitigs.
    ///
    /// # Errors
    /// The index is damaged, or something cannot be written.
    pub fn fasta(&self, out: &mut impl Write) -> Result<()> {
        let mut links = self.links()?;
        let (mut bucket, mut here, mut at) = (0, Vec::new(), 0);
        let mut lines = Vec::new();
        self.for_each(|unitig, text| {
            if unitig == links.range(bucket).start {
                here = links.take(bucket)?;
                (bucket, at) = ((bucket + 1).min(links.buckets() - 1), 0);
            }
            lines.extend(format!(">{unitig} LN:i:{}", text.len()).bytes());
            while let Some(&[from, to]) = here.get(at).filter(|link| link[0] / 2 == unitig) {
                lines.extend(format!(" L:{}:{}:{}", leaving(from), to / 2, entering(to)).bytes());
                at += 1;
            }
            lines.push(b'\n');
            push_letters(text, &mut lines, out)?;
            lines.push(b'\n');
            full(&mut lines, out)
        })?;
        out.write_all(&lines).context(writing)
    }

    /// GFA 1: a segment for each unitig, then each link once, both in order.
    ///
    /// # Errors
    /// The index is damaged, or something cannot be written.
    pub fn gfa(&self, out: &mut impl Write) -> Result<()> {
        let mut lines = b"H\tVN:Z:1.0\n".to_vec();
        self.for_each(|unitig, text| {
            lines.extend(format!("S\t{unitig}\t").bytes());
            push_letters(text, &mut lines, out)?;
            lines.extend(format!("\tLN:i:{}\n", text.len()).bytes());
            full(&mut lines, out)
        })?;
        let overlap = self.index.meta.k - 1;
        let mut links = self.links()?;
        for bucket in 0..links.buckets() {
            // Read backwards a link leads from its second end to its first.
            for [from, to] in links.take(bucket)?.into_iter().filter(|[from, to]| from <= to) {
                let (leaving, entering) = (leaving(from), entering(to));
                let line = format!("L\t{}\t{leaving}\t{}\t{entering}\t{overlap}M\n", from / 2, to / 2);
                lines.extend(line.bytes());
                full(&mut lines, out)?;
            }
        }
        out.write_all(&lines).context(writing)
    }
}

/// The direction in which a unitig is read towards this end.
fn leaving(end: End) -> char {
    if end % 2 == 1 { '+' } else { '-' }
}

/// The direction in which it is read from this end on.
fn entering(end: End) -> char {
    if end.is_multiple_of(2) { '+' } else { '-' }
}
