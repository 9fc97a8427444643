//! How sequences begin: what kind they are, behind lines without a letter, which are skipped.

use std::io::{Cursor, Read};

use needletail::errors::ParseError;
use needletail::parser::FastxReader;

use crate::input::compressed::{self, Format};

/// Bytes looked at together while lines are skipped.
const LOOK: u64 = 4096;

/// What a file is, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Plain FASTA, whose first record begins at this byte.
    Fasta(u64),
    /// Plain FASTQ.
    Fastq,
    /// Compressed; what is in it is not known.
    Compressed(Format),
    /// Nothing but blank lines, if anything.
    Empty,
    /// None of these.
    Other,
}

/// Look at the first bytes.
pub fn kind(reader: &mut impl Read) -> std::io::Result<Kind> {
    let (skipped, bytes) = skip_blank_lines(reader)?;
    Ok(match bytes[..] {
        [] => Kind::Empty,
        [b'>', ..] => Kind::Fasta(skipped),
        [b'@', ..] => Kind::Fastq,
        _ if skipped > 0 => Kind::Other,
        _ => Format::of(&bytes).map_or(Kind::Other, Kind::Compressed),
    })
}

/// The records of FASTA or FASTQ, plain or compressed.
pub fn records<'a>(mut reader: impl Read + Send + 'a) -> Result<Box<dyn FastxReader + 'a>, ParseError> {
    let mut first = Vec::new();
    reader.by_ref().take(compressed::LOOK as u64).read_to_end(&mut first)?;
    let format = Format::of(&first);
    let reader = Cursor::new(first).chain(reader);
    match format {
        Some(format) => plain(format.decoder(reader)),
        None => plain(reader),
    }
}

fn plain<'a>(mut reader: impl Read + Send + 'a) -> Result<Box<dyn FastxReader + 'a>, ParseError> {
    let (_, bytes) = skip_blank_lines(&mut reader)?;
    needletail::parse_fastx_reader(Cursor::new(bytes).chain(reader))
}

/// Skip lines of white space: how many bytes those were, and bytes that have been read behind them, none only
/// at the end. White space that does not end with a line is no blank line: its last byte is among them.
fn skip_blank_lines(reader: &mut impl Read) -> std::io::Result<(u64, Vec<u8>)> {
    let (mut skipped, mut last) = (0, b'\n');
    loop {
        let mut bytes = Vec::new();
        reader.take(LOOK).read_to_end(&mut bytes)?;
        let blank = bytes.iter().position(|b| !b.is_ascii_whitespace());
        let until = blank.unwrap_or(bytes.len());
        last = bytes[..until].last().copied().unwrap_or(last);
        skipped += until as u64;
        if blank.is_none() && bytes.len() as u64 == LOOK {
            continue;
        }
        bytes.drain(..until);
        if last != b'\n' && !bytes.is_empty() {
            bytes.insert(0, last);
            skipped -= 1;
        }
        return Ok((skipped, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_are_skipped_however_many() {
        for blank in ["", "\n", "\r\n \t\n\n", &"\n".repeat(4096), &" \n".repeat(5000)] {
            for (text, expected) in [
                (">a\nACGT\n", Kind::Fasta(blank.len() as u64)),
                ("@a\nACGT\n+\nIIII\n", Kind::Fastq),
                ("", Kind::Empty),
                ("hello", Kind::Other),
                (" >a\n", Kind::Other),
            ] {
                let text = format!("{blank}{text}");
                assert_eq!(kind(&mut text.as_bytes()).expect("read"), expected, "{text:?}");
                let whole = records(text.as_bytes()).is_ok_and(|mut records| {
                    let record = records.next().expect("a record").expect("well-formed");
                    record.id() == b"a" && record.seq()[..] == *b"ACGT"
                });
                assert_eq!(whole, matches!(expected, Kind::Fasta(_) | Kind::Fastq), "{text:?}");
            }
        }
        let gzip = kind(&mut &[0x1f, 0x8b, 8][..]).expect("read");
        assert_eq!(gzip, Kind::Compressed(Format::Gzip));
        assert_eq!(kind(&mut &[b'\n', 0x1f, 0x8b, 8][..]).expect("read"), Kind::Other);
    }
}
