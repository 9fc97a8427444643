//! What is done to the bytes of a chunk, one after the other: compressed, summed.

use std::io::{self, Read, Write};

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use flate2::write::GzEncoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::{blosc, wrong};

/// Something that is done to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Gzip(u32),
    Zlib,
    Zstd,
    Blosc,
    /// Their sum behind them.
    Crc32c,
}

/// Bytes of a sum.
const SUM: usize = 4;

impl Packing {
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip(_) => "gzip",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
            Self::Blosc => "blosc",
            Self::Crc32c => "crc32c",
        }
    }

    /// Of so many bytes, how many it makes, if that does not depend on them.
    fn packed(self, len: usize) -> Option<usize> {
        (self == Self::Crc32c).then_some(len.saturating_add(SUM))
    }

    /// So many bytes at most; into a vector that has room for so many.
    fn unpack(self, bytes: &[u8], most: usize, room: usize) -> io::Result<Vec<u8>> {
        let all = room_for(room)?;
        match self {
            Self::Gzip(_) => all_of(MultiGzDecoder::new(bytes), most, all),
            Self::Zlib => all_of(ZlibDecoder::new(bytes), most, all),
            Self::Zstd => frames(bytes, most, all),
            Self::Blosc => blosc::unpack(bytes, most),
            Self::Crc32c => checked(bytes).map(<[u8]>::to_vec),
        }
    }

    fn pack(self, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(level) => {
                let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(level));
                encoder.write_all(&bytes)?;
                encoder.finish()
            }
            Self::Zstd => Ok(sized(compress_to_vec(&bytes[..], CompressionLevel::Fastest), bytes.len())),
            Self::Crc32c => {
                let mut bytes = bytes;
                let sum = crc32c::crc32c(&bytes);
                bytes.extend(sum.to_le_bytes());
                Ok(bytes)
            }
            Self::Zlib | Self::Blosc => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Without the sum, which is that of the bytes before it.
pub(super) fn checked(bytes: &[u8]) -> io::Result<&[u8]> {
    let split = bytes.split_last_chunk::<SUM>();
    let (bytes, sum) = split.ok_or_else(|| wrong("shorter than its crc32c"))?;
    let is_right = crc32c::crc32c(bytes) == u32::from_le_bytes(*sum);
    if is_right { Ok(bytes) } else { Err(wrong("damaged: its crc32c is that of other bytes")) }
}

/// A vector that has room for so many bytes, or the error that there are none.
pub(super) fn room_for(len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    Ok(bytes)
}

/// A frame with the length of what is in it, which some readers need (numcodecs before 0.16.2) and the
/// encoder does not say: eight bytes behind the descriptor of the window (RFC 8878, 3.1.1.1).
fn sized(mut frame: Vec<u8>, len: usize) -> Vec<u8> {
    // No length, no single segment, no dictionary.
    if frame.get(4).is_some_and(|descriptor| descriptor & 0b1110_0011 == 0) {
        frame[4] |= 0b1100_0000;
        frame.splice(6..6, (len as u64).to_le_bytes());
    }
    frame
}

/// All that a decoder gives, of so many bytes at most.
fn all_of(decoder: impl Read, most: usize, mut all: Vec<u8>) -> io::Result<Vec<u8>> {
    decoder.take(most as u64).read_to_end(&mut all)?;
    Ok(all)
}

/// The frames of zstd, one behind the other, with their sums. A decoder keeps a window of what it has
/// decoded, up to 128 MiB, before it gives the first byte: no more is decoded than there may be.
pub(super) fn frames(mut bytes: &[u8], most: usize, mut all: Vec<u8>) -> io::Result<Vec<u8>> {
    let bad = |error: FrameDecoderError| wrong(error.to_string());
    let mut decoder = FrameDecoder::new();
    while !bytes.is_empty() {
        match decoder.init(&mut bytes) {
            Ok(()) => {}
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                bytes = bytes.get(length as usize..).ok_or_else(|| wrong("the data are cut off"))?;
                continue;
            }
            Err(error) => return Err(bad(error)),
        }
        let (mut decoded, some) = (all.len(), most.saturating_add(1).min(1 << 20));
        while !decoder.is_finished() {
            if decoded > most {
                return Err(wrong("more bytes than there can be"));
            }
            let upto = BlockDecodingStrategy::UptoBytes(some);
            let is_last = decoder.decode_blocks(&mut bytes, upto).map_err(bad)?;
            decoded = decoded.saturating_add(if is_last { 0 } else { some });
            decoder.by_ref().take((most - all.len()) as u64).read_to_end(&mut all)?;
            if all.len() == most {
                break;
            }
        }
        let told = decoder.get_checksum_from_data();
        if decoder.can_collect() > 0 || !decoder.is_finished() {
            return Ok(all);
        }
        if told.is_some() && told != decoder.get_calculated_checksum() {
            return Err(wrong("damaged: the sum of a frame is that of other bytes"));
        }
    }
    Ok(all)
}

/// So many bytes nothing makes of so many.
pub(super) fn most_packed(len: usize) -> usize {
    len.saturating_mul(2).saturating_add(1 << 16)
}

/// Undoes all that was done, of a chunk that had so many bytes: or of one that had so many at most, if that
/// is not said to be exact.
pub(super) fn unpack(
    packings: &[Packing],
    bytes: Vec<u8>,
    len: usize,
    is_exact: bool,
) -> io::Result<Vec<u8>> {
    // How many bytes there were before each.
    let mut lens = vec![(len, is_exact)];
    for packing in packings {
        let &(len, is_exact) = lens.last().unwrap_or(&(len, is_exact));
        lens.push(packing.packed(len).map_or((most_packed(len), false), |packed| (packed, is_exact)));
    }
    let mut bytes = bytes;
    for (packing, &(len, is_exact)) in packings.iter().zip(&lens).rev() {
        // One more tells that there are too many.
        let (most, room) = (len.saturating_add(1), if is_exact { len.saturating_add(1) } else { 0 });
        let unpacked = packing.unpack(&bytes, most, room);
        bytes = unpacked.map_err(|error| wrong(format!("{}: {error}", packing.name())))?;
        let count = bytes.len();
        if count > len || (is_exact && count < len) {
            let than = if count > len { "more" } else { "fewer" };
            return Err(wrong(format!("{}: {than} bytes than the {len} of a chunk", packing.name())));
        }
    }
    Ok(bytes)
}

pub(super) fn pack(packings: &[Packing], bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    packings.iter().try_fold(bytes, |bytes, packing| packing.pack(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out() {
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(|x| (x / 7).to_le_bytes()).collect();
        for packings in [
            &[Packing::Gzip(1)][..],
            &[Packing::Zstd],
            &[Packing::Crc32c],
            &[Packing::Crc32c, Packing::Gzip(9), Packing::Crc32c],
            &[Packing::Zstd, Packing::Gzip(0), Packing::Crc32c],
            &[],
        ] {
            let packed = pack(packings, bytes.clone()).unwrap();
            assert_eq!(unpack(packings, packed.clone(), bytes.len(), true).unwrap(), bytes);
            if packings.is_empty() {
                continue;
            }
            for len in [bytes.len() - 1, bytes.len() + 1, 0] {
                let error = unpack(packings, packed.clone(), len, true).unwrap_err().to_string();
                assert!(packings.iter().any(|packing| error.contains(packing.name())), "{error}");
            }
            for cut in [0, 1, packed.len() / 2, packed.len() - 1] {
                let found = unpack(packings, packed[..cut].to_vec(), bytes.len(), true);
                assert!(found.is_err(), "{packings:?} of {cut} bytes");
            }
            if packings.contains(&Packing::Crc32c) {
                let mut packed = packed;
                packed[77] ^= 1;
                let error = unpack(packings, packed, bytes.len(), true).unwrap_err().to_string();
                assert!(error.contains("damaged"), "{error}");
            }
        }
    }

    #[test]
    fn frames_behind_each_other() {
        let small = compress_to_vec(&b"ab"[..], CompressionLevel::Fastest);
        assert_eq!(sized(small, 2)[6..14], 2_u64.to_le_bytes());
        // 128 MiB of one byte in a window that holds them: of a chunk of 8 no more than a block is decoded.
        let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x88];
        for _ in 0..1024 {
            // A block of one byte, 2^17 times.
            let head = (1_u32 << 17 << 3 | 1 << 1).to_le_bytes();
            bomb.extend([head[0], head[1], head[2], 7]);
        }
        let error = unpack(&[Packing::Zstd], bomb, 8, true).unwrap_err().to_string();
        assert!(error.contains("more bytes than there can be"), "{error}");
        let two = [
            compress_to_vec(&b"ab"[..], CompressionLevel::Fastest),
            vec![0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9],
        ];
        let bytes = [two.concat(), two[0].clone()].concat();
        assert_eq!(unpack(&[Packing::Zstd], bytes, 4, true).unwrap(), b"abab");
    }
}
