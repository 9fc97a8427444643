//! `dump`: what an index holds as text, partition by partition, and in each in the order of its files. So the
//! order is always the same, and no more than a few texts are in memory, however long the output is.

pub mod graph;
mod links;
mod spill;

use std::io::Write;
use std::path::Path;

use crate::error::{Context, Result};
use crate::fields::shown;
use crate::index::Index;
use crate::sequence::kmer::{LETTER, Oriented, push_text};
use crate::sequence::packed::Text;
use crate::sequence::word::Word;

/// Bytes gathered before they are written.
const GATHERED: usize = 1 << 16;
/// Bases of a long text that are written together.
const TOGETHER: usize = 1 << 16;

/// What stands behind a k-mer in its line, made of its sources.
type Ending<'a> = dyn Fn(&[u32], &mut Vec<u8>) + 'a;

/// All k-mers, canonical, one per line.
pub fn kmers(dir: &Path, out: &mut impl Write) -> Result<()> {
    rows(&Index::open(dir)?, &|_, _| (), out)
}

/// A table: for each k-mer and each source whether that holds it, 1 or 0, separated by tabs; first a line
/// with the names of the sources.
pub fn matrix(dir: &Path, out: &mut impl Write) -> Result<()> {
    let index = Index::open(dir)?;
    let mut head = b"kmer".to_vec();
    for name in &index.meta.sources {
        head.push(b'\t');
        head.extend(shown(name, None).bytes());
    }
    head.push(b'\n');
    out.write_all(&head).context(writing)?;
    let none: Vec<u8> = b"\t0".repeat(index.meta.sources.len());
    let ending = |members: &[u32], line: &mut Vec<u8>| {
        let begin = line.len();
        line.extend_from_slice(&none);
        members.iter().for_each(|&source| line[begin + 2 * source as usize + 1] = b'1');
    };
    rows(&index, &ending, out)
}

/// Each k-mer with the names of the sources that hold it: a tab before the first, commas between them.
pub fn sources(dir: &Path, out: &mut impl Write) -> Result<()> {
    let index = Index::open(dir)?;
    let names: Vec<String> = index.meta.sources.iter().map(|name| shown(name, Some(','))).collect();
    let ending = |members: &[u32], line: &mut Vec<u8>| {
        for (number, &source) in members.iter().enumerate() {
            line.push(if number == 0 { b'\t' } else { b',' });
            line.extend_from_slice(names[source as usize].as_bytes());
        }
    };
    rows(&index, &ending, out)
}

/// All joined unitigs, one per line.
pub fn unitigs(dir: &Path, out: &mut impl Write) -> Result<()> {
    let index = Index::open(dir)?;
    let mut line = Vec::new();
    for partition in 0..index.meta.partitions {
        for layer in 0..index.meta.layers {
            index.unitigs(layer, partition)?.for_each(|text| {
                push_letters(text, &mut line, out)?;
                line.push(b'\n');
                full(&mut line, out)
            })?;
        }
    }
    out.write_all(&line).context(writing)
}

/// A line for each k-mer.
fn rows(index: &Index, ending: &Ending<'_>, out: &mut impl Write) -> Result<()> {
    if index.meta.lengths()?.is_wide() {
        return rows_of::<u128>(index, ending, out);
    }
    rows_of::<u64>(index, ending, out)
}

fn rows_of<W: Word>(index: &Index, ending: &Ending<'_>, out: &mut impl Write) -> Result<()> {
    let (k, sources) = (index.meta.k, index.meta.sources.len());
    let (mut text, mut end) = (Vec::new(), Vec::new());
    for partition in 0..index.meta.partitions {
        for layer in 0..index.meta.layers {
            let layer = index.layer::<W>(layer, partition)?;
            let view = layer.view()?;
            let mut before = None;
            layer.for_each_stretch(|codes, set| {
                if before != Some(set) {
                    before = Some(set);
                    let members = view.members_of(set, sources)?;
                    end.clear();
                    ending(members, &mut end);
                    end.push(b'\n');
                }
                let mut kmer = Oriented::<W>::new(W::from_codes(&codes[..k - 1]), k);
                for &base in &codes[k - 1..] {
                    kmer = kmer.right(base, k);
                    push_text(kmer.canonical(), k, &mut text);
                    text.extend_from_slice(&end);
                    full(&mut text, out)?;
                }
                Ok(())
            })?;
        }
    }
    out.write_all(&text).context(writing)
}

/// Write what has gathered, if it is much.
fn full(text: &mut Vec<u8>, out: &mut impl Write) -> Result<()> {
    if text.len() >= GATHERED {
        out.write_all(text).context(writing)?;
        text.clear();
    }
    Ok(())
}

/// Append the letters of a text, which may be longer than memory.
fn push_letters(text: Text<'_>, line: &mut Vec<u8>, out: &mut impl Write) -> Result<()> {
    for from in (0..text.len()).step_by(TOGETHER) {
        let begin = line.len();
        text.cut(from, TOGETHER.min(text.len() - from)).unpack(line);
        line[begin..].iter_mut().for_each(|code| *code = LETTER[usize::from(*code)]);
        full(line, out)?;
    }
    Ok(())
}

fn writing() -> String {
    "cannot write to standard output".into()
}
