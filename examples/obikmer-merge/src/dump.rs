//! `dump`: canonical text of an index, one k-mer or unitig per line, partition by partition.

use std::io::Write;
use std::path::Path;

use crate::error::{Context, Result};
use crate::index::Index;
use crate::sequence::kmer::{LETTER, push_text};
use crate::sequence::word::Word;

/// All k-mers.
pub fn kmers(dir: &Path, out: &mut impl Write) -> Result<()> {
    let index = Index::open(dir)?;
    if index.meta.lengths()?.is_wide() {
        return kmers_of::<u128>(&index, out);
    }
    kmers_of::<u64>(&index, out)
}

fn kmers_of<W: Word>(index: &Index, out: &mut impl Write) -> Result<()> {
    let mut text = Vec::new();
    for partition in 0..index.meta.partitions {
        for layer in 0..index.meta.layers {
            let layer = index.layer::<W>(layer, partition)?;
            let mut result = Ok(());
            layer.for_each_kmer(|_, kmer, _| {
                push_text(kmer.canonical(), index.meta.k, &mut text);
                text.push(b'\n');
                if text.len() >= 1 << 16 {
                    if result.is_ok() {
                        result = out.write_all(&text);
                    }
                    text.clear();
                }
            })?;
            result.and_then(|()| out.write_all(&text)).context(|| "cannot write the k-mers".into())?;
            text.clear();
        }
    }
    Ok(())
}

/// All joined unitigs.
pub fn unitigs(dir: &Path, out: &mut impl Write) -> Result<()> {
    let index = Index::open(dir)?;
    let mut text = Vec::new();
    for partition in 0..index.meta.partitions {
        for layer in 0..index.meta.layers {
            index.unitigs(layer, partition)?.for_each(|codes| {
                text.clear();
                text.extend(codes.iter().map(|&c| LETTER[c as usize]));
                text.push(b'\n');
                out.write_all(&text).context(|| "cannot write the unitigs".into())
            })?;
        }
    }
    Ok(())
}
