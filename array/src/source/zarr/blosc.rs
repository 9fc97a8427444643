//! What Blosc (version 1 of its format: c-blosc 1.x, as NumPy's users have it) has compressed: blocks, each
//! in one part or in one for each byte of an element, whose bytes or bits were put together before that.

use std::io::{self, Read};

use super::packing::{frames, room_for};
use super::wrong;

/// What comes before the blocks.
const HEADER: usize = 16;

/// Which decoder the parts are for.
#[derive(Clone, Copy)]
enum Codec {
    Lz4,
    Zlib,
    Zstd,
}

/// Reads a number of four bytes.
fn word(bytes: &[u8], at: usize) -> io::Result<usize> {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    word.map(|word| u32::from_le_bytes(*word) as usize).ok_or_else(|| wrong("the data are cut off"))
}

/// What is in bytes that were compressed: `most` of it at most.
pub(super) fn unpack(bytes: &[u8], most: usize) -> io::Result<Vec<u8>> {
    let &[version, _, flags, size, ..] = bytes else { return Err(wrong("shorter than its header")) };
    if !(1..=2).contains(&version) {
        return Err(wrong(format!("version {version} of its format, which is not known here")));
    }
    let (len, block, packed) = (word(bytes, 4)?, word(bytes, 8)?, word(bytes, 12)?);
    let bytes = bytes.get(..packed).ok_or_else(|| wrong("the data are cut off"))?;
    if len > most {
        return Err(wrong(format!("{len} bytes, which is more than there can be")));
    }
    // Nothing was gained by compressing it.
    if flags & 2 != 0 {
        let plain = bytes.get(HEADER..HEADER + len).ok_or_else(|| wrong("the data are cut off"))?;
        return Ok(plain.to_vec());
    }
    let mut all = room_for(len)?;
    all.resize(len, 0);
    if len == 0 {
        return Ok(all);
    }
    let codec = match flags >> 5 {
        1 => Codec::Lz4,
        3 => Codec::Zlib,
        4 => Codec::Zstd,
        0 => return Err(wrong("compressed by blosclz, which is not supported (lz4, zlib and zstd are)")),
        2 => return Err(wrong("compressed by snappy, which is not supported (lz4, zlib and zstd are)")),
        other => return Err(wrong(format!("compressed by number {other}, which is not known"))),
    };
    if block == 0 || size == 0 {
        return Err(wrong("blocks or elements of no bytes"));
    }
    let size = usize::from(size);
    let mut shuffled = Vec::new();
    for (number, to) in all.chunks_mut(block).enumerate() {
        let from = word(bytes, HEADER + 4 * number)?;
        // A last block that is shorter is never in parts.
        let is_split =
            flags & 16 == 0 && to.len() == block && (2..=16).contains(&size) && block / size >= 128;
        let parts = if is_split { size } else { 1 };
        let is_shuffled = flags & 5 != 0 && (size > 1 || flags & 4 != 0);
        if is_shuffled {
            shuffled.clear();
            shuffled.resize(to.len(), 0);
            parts_of(codec, bytes, from, parts, &mut shuffled)?;
            if flags & 4 != 0 { bits_back(&shuffled, size, to) } else { bytes_back(&shuffled, size, to) }
        } else {
            parts_of(codec, bytes, from, parts, to)?;
        }
    }
    Ok(all)
}

/// The parts of a block, each with its length before it.
fn parts_of(codec: Codec, bytes: &[u8], from: usize, parts: usize, to: &mut [u8]) -> io::Result<()> {
    let cut = || wrong("the data are cut off");
    let (mut at, len) = (from, to.len() / parts);
    if len * parts != to.len() {
        return Err(wrong("blocks of elements in part"));
    }
    for to in to.chunks_exact_mut(len) {
        let packed = word(bytes, at)?;
        at += 4;
        let part = bytes.get(at..).and_then(|rest| rest.get(..packed)).ok_or_else(cut)?;
        at += packed;
        if packed == len {
            to.copy_from_slice(part);
            continue;
        }
        let count = match codec {
            Codec::Lz4 => {
                lz4_flex::block::decompress_into(part, to).map_err(|error| wrong(error.to_string()))?
            }
            Codec::Zlib => {
                let mut decoder = flate2::bufread::ZlibDecoder::new(part);
                decoder.read_exact(to)?;
                to.len()
            }
            Codec::Zstd => {
                let found = frames(part, len, room_for(len)?)?;
                to[..found.len()].copy_from_slice(&found);
                found.len()
            }
        };
        if count != len {
            return Err(wrong(format!("a part of {len} bytes has {count}")));
        }
    }
    Ok(())
}

/// The first bytes of all elements were put together, then the second ones, …; what is left over behind them.
fn bytes_back(from: &[u8], size: usize, to: &mut [u8]) {
    let count = from.len() / size;
    for byte in 0..if count == 0 { 0 } else { size } {
        let of_all = &from[byte * count..][..count];
        for (&from, to) in of_all.iter().zip(to[byte..].iter_mut().step_by(size)) {
            *to = from;
        }
    }
    to[count * size..].copy_from_slice(&from[count * size..]);
}

/// The same of bits. Elements that cannot be put in eights were left as they are.
fn bits_back(from: &[u8], size: usize, to: &mut [u8]) {
    let elements = from.len() / size;
    let count = if elements.is_multiple_of(8) { elements } else { 0 };
    to[..count * size].fill(0);
    for bit in 0..size * 8 {
        let of_all = &from[bit * count / 8..][..count / 8];
        for (eight, &bits) in of_all.iter().enumerate() {
            for number in 0..8 {
                to[(eight * 8 + number) * size + bit / 8] |= (bits >> number & 1) << (bit % 8);
            }
        }
    }
    to[count * size..].copy_from_slice(&from[count * size..]);
}
