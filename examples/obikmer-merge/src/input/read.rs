//! Reading a rank's share of the input, whatever it is, into the router.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use needletail::parser::FastxReader;

use crate::error::{Context, Error, Result};
use crate::input::tally::{Tallies, Tally};
use crate::input::{BUNDLED, Inputs, Unit, begin, fasta};
use crate::sequence::kmer::Lengths;
use crate::sequence::minimizer::Partitions;
use crate::superkmer::cut::Cutter;
use crate::superkmer::route::Router;

/// Read `units`, cut them, and hand everything to the router. `report` is told bytes done, and `tallies` of
/// sources that hardly have k-mers.
pub fn read(
    inputs: &Inputs,
    units: &[Unit],
    lengths: Lengths,
    partitions: Partitions,
    router: &mut Router<'_>,
    report: &dyn Fn(u64, u64),
    tallies: &mut Tallies,
) -> Result<()> {
    let total: u64 = units.iter().map(|u| inputs.weight(u)).sum();
    let mut done = 0;
    // The plain files of all ranks lie end to end, so only the first and the last may be others' too.
    let is_plain = |unit: &Unit| matches!(unit, Unit::Fasta { .. });
    let ends = [units.iter().position(is_plain), units.iter().rposition(is_plain)];
    let mut cutter = Cutter::new(lengths, partitions);
    report(0, total);
    for (number, unit) in units.iter().enumerate() {
        match *unit {
            Unit::Fasta { file, source, begin, end } => {
                router.set_source(source);
                let mut letters = 0;
                let mut each = |part: &[u8]| {
                    letters += part.len() as u64;
                    cutter.letters(part, router)
                };
                let mut progress = |bytes| {
                    done += bytes;
                    report(done, total);
                };
                let from = &inputs.files[file];
                let separators = fasta::read_range(from, begin, end, lengths.k, &mut each, &mut progress)?;
                cutter.end(router)?;
                let mut cut = cutter.take_cut();
                cut.breaks -= separators;
                let tally = Tally::new(letters - separators, cut, lengths.k);
                tallies.add(source, !ends.contains(&Some(number)), tally, lengths.k);
            }
            Unit::Whole { file, source } => {
                router.set_source(source);
                let from = &inputs.files[file];
                let opened = from.open()?;
                let mut letters = 0;
                records(&from.name, records_of(&from.name, &opened)?, &mut |record| {
                    letters += record.len() as u64;
                    cutter.letters(record, router)?;
                    cutter.end(router)
                })?;
                from.check(&opened)?;
                tallies.add(source, true, Tally::new(letters, cutter.take_cut(), lengths.k), lengths.k);
            }
            Unit::Bundled { which } => {
                router.set_source(which as u32);
                let (name, bytes) = BUNDLED[which];
                let path = Path::new(name);
                records(path, records_of(path, Cursor::new(bytes))?, &mut |letters| {
                    cutter.letters(letters, router)?;
                    cutter.end(router)
                })?;
            }
            Unit::Layer { index, layer, partition } => {
                let (index, first) = &inputs.indexes[index];
                let (layer, sources) = (index.layer::<u64>(layer, partition)?, index.meta.sources.len());
                layer.for_each_stretch(|codes, set| {
                    for source in layer.members_of(set, sources)? {
                        router.set_source(first + source);
                        cutter.codes(codes, router)?;
                        cutter.end(router)?;
                    }
                    Ok(())
                })?;
            }
        }
        // Of what is not counted nothing is left for the next unit.
        cutter.take_cut();
        if !matches!(unit, Unit::Fasta { .. }) {
            done += inputs.weight(unit);
            report(done, total);
        }
    }
    Ok(())
}

/// The records of the file at `path`, which is called `name`.
pub fn open_records(name: &Path, path: &Path) -> Result<Box<dyn FastxReader>> {
    records_of(name, File::open(path).context(|| format!("cannot open {}", name.display()))?)
}

/// The records of something that is called `name`.
pub fn records_of<'a>(name: &Path, reader: impl Read + Send + 'a) -> Result<Box<dyn FastxReader + 'a>> {
    begin::records(reader).map_err(|e| sequence_error(name, "1", &e))
}

/// Every record's letters.
pub fn records(path: &Path, mut reader: Box<dyn FastxReader + '_>, each: &mut fasta::Each<'_>) -> Result<()> {
    for_each_record(path, &mut *reader, &mut |_, letters| each(letters))
}

/// Receives a record's name and its letters.
pub type EachRecord<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// Every record's name and letters.
pub fn for_each_record(path: &Path, reader: &mut dyn FastxReader, each: &mut EachRecord<'_>) -> Result<()> {
    let mut before = None;
    let mut count = 0u64;
    // FASTQ has a line of its sequence, empty or not.
    let mut without_sequence = false;
    while let Some(record) = reader.next() {
        count += 1;
        let record = record.map_err(|e| {
            let name = before.as_ref().map_or_else(|| "1".into(), |b| format!("{count} (after {b})"));
            sequence_error(path, &name, &e)
        })?;
        let name = String::from_utf8_lossy(record.id()).into_owned();
        let letters = record.seq();
        fasta::check_letters(&letters).map_err(|what| Error::Sequence {
            file: path.to_path_buf(),
            record: name.clone(),
            what,
        })?;
        without_sequence = letters.is_empty() && record.qual().is_none();
        each(record.id(), &letters)?;
        before = Some(name);
    }
    match before {
        Some(record) if without_sequence => {
            Err(Error::Sequence { file: path.to_path_buf(), record, what: fasta::NO_SEQUENCE.into() })
        }
        _ => Ok(()),
    }
}

/// needletail's error, with its file and record.
pub fn sequence_error(path: &Path, record: &str, error: &needletail::errors::ParseError) -> Error {
    Error::Sequence { file: path.to_path_buf(), record: record.into(), what: error.to_string() }
}
