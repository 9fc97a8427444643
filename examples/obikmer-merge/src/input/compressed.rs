//! Compressed input: gzip (bgzip's too), xz and zstd, told apart by their first bytes; of several members,
//! streams or frames one after another all are read. The decoders are Rust, so what they hold lies in this
//! program's heap, and counts, as everything else does.

use std::io::{BufReader, Cursor, Error, ErrorKind, Read, Result};

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use serde::{Deserialize, Serialize};

/// Bytes by which a format is known, at most.
pub const LOOK: usize = 6;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const XZ: [u8; LOOK] = *b"\xfd7zXZ\0";
const ZSTD: u32 = 0xfd2f_b528;
/// The first number of a zstd frame that is to be skipped, but for its lowest four bits.
const SKIPPED: u32 = 0x184d_2a50;

/// A way of compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// gzip, of one member or several.
    Gzip,
    /// xz, of one stream or several.
    Xz,
    /// zstd, of one frame or several.
    Zstd,
}

impl Format {
    /// Of what begins with these bytes: [`LOOK`] of them, or all.
    pub fn of(first: &[u8]) -> Option<Self> {
        if first.starts_with(&GZIP) {
            return Some(Self::Gzip);
        }
        if first.starts_with(&XZ) {
            return Some(Self::Xz);
        }
        let number = u32::from_le_bytes(*first.first_chunk()?);
        (number == ZSTD || number & !15 == SKIPPED).then_some(Self::Zstd)
    }

    /// About how many bytes a compressed byte stands for.
    pub fn expansion(self) -> u64 {
        match self {
            Self::Gzip | Self::Zstd => 4,
            Self::Xz => 5,
        }
    }

    /// What has been compressed.
    pub fn decoder<'a>(self, reader: impl Read + Send + 'a) -> Box<dyn Read + Send + 'a> {
        let reader = BufReader::with_capacity(1 << 16, reader);
        match self {
            Self::Gzip => Box::new(Named(self, MultiGzDecoder::new(reader))),
            Self::Xz => Box::new(Named(self, XzReader::new(reader, true))),
            Self::Zstd => {
                Box::new(Named(self, Frames { reader, decoder: FrameDecoder::new(), inside: false }))
            }
        }
    }
}

/// A decoder whose errors name the format, and say it where the data have no end.
struct Named<R>(Format, R);

impl<R: Read> Read for Named<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let format = self.0;
        self.1.read(out).map_err(|error| match error.kind() {
            ErrorKind::Interrupted => error,
            kind if is_cut_off(&error) => Error::new(kind, format!("{format:?}: the data are cut off")),
            kind => Error::new(kind, format!("{format:?}: {error}")),
        })
    }
}

/// Did something read beyond the end?
fn is_cut_off(error: &(dyn std::error::Error + 'static)) -> bool {
    let here = error.downcast_ref::<Error>();
    let inner = here.and_then(Error::get_ref).map(|inner| inner as &(dyn std::error::Error + 'static));
    here.is_some_and(|error| error.kind() == ErrorKind::UnexpectedEof)
        || inner.or(error.source()).is_some_and(is_cut_off)
}

/// The frames of zstd, one after another.
struct Frames<R> {
    reader: R,
    decoder: FrameDecoder,
    /// A frame has begun, and not all of it has been read.
    inside: bool,
}

impl<R: Read> Frames<R> {
    /// Go to the next frame. `false` at the end.
    fn begin(&mut self) -> Result<bool> {
        loop {
            let mut number = Vec::with_capacity(4);
            self.reader.by_ref().take(4).read_to_end(&mut number)?;
            let number = match number[..] {
                [] => return Ok(false),
                [a, b, c, d] => [a, b, c, d],
                _ => return Err(ErrorKind::UnexpectedEof.into()),
            };
            if u32::from_le_bytes(number) & !15 != SKIPPED {
                self.decoder.reset(Cursor::new(number).chain(&mut self.reader)).map_err(bad)?;
                self.inside = true;
                return Ok(true);
            }
            let mut bytes = [0; 4];
            self.reader.read_exact(&mut bytes)?;
            let bytes = u64::from(u32::from_le_bytes(bytes));
            if std::io::copy(&mut self.reader.by_ref().take(bytes), &mut std::io::sink())? != bytes {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        loop {
            if out.is_empty() || (!self.inside && !self.begin()?) {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.reader, one).map_err(bad)?;
            }
            let read = self.decoder.read(out)?;
            if read > 0 {
                return Ok(read);
            }
            self.inside = false;
            let told = self.decoder.get_checksum_from_data();
            if told.is_some() && told != self.decoder.get_calculated_checksum() {
                return Err(Error::new(ErrorKind::InvalidData, "the checksum of a frame is not its own"));
            }
        }
    }
}

fn bad(error: FrameDecoderError) -> Error {
    Error::new(ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        let format = Format::of(bytes).expect("known");
        format.decoder(bytes).read_to_end(&mut all)?;
        Ok(all)
    }

    #[test]
    fn frames_follow_one_another_and_some_are_skipped() {
        let frame = |text: &[u8]| compress_to_vec(text, CompressionLevel::Fastest);
        let skipped = [&(SKIPPED | 3).to_le_bytes()[..], &5u32.to_le_bytes(), b"other"].concat();
        let random = crate::sequence::minimizer::order;
        let text: Vec<u8> = (0..300_000).map(|i| b"ACGT"[random(i) as usize % 4]).collect();
        let frames = [&skipped[..], &frame(&text), &frame(b""), &skipped, &frame(b"end")].concat();
        assert_eq!(read(&frames).expect("whole"), [&text[..], b"end"].concat());
        for cut in [1, 2, 3, 5, 10, frames.len() / 2] {
            let error = read(&frames[..frames.len() - cut]).expect_err("cut off");
            assert!(error.to_string().contains("Zstd: the data are cut off"), "{cut}: {error}");
        }
        assert!(read(&[&frames[..], b"garbage"].concat()).is_err());
        // A bit in the text of a raw block, which only the checksum knows.
        let mut other = frame(b"end");
        let at = other.windows(3).position(|w| w == b"end").expect("as it is");
        other[at] ^= 1;
        assert!(read(&other).expect_err("changed").to_string().contains("checksum"));
    }

    #[test]
    fn formats_are_told_by_their_first_bytes() {
        for (bytes, format) in [
            (&b"\x1f\x8b\x08"[..], Some(Format::Gzip)),
            (b"\xfd7zXZ\0\0", Some(Format::Xz)),
            (b"\x28\xb5\x2f\xfd\x04", Some(Format::Zstd)),
            (b"\x50\x2a\x4d\x18", Some(Format::Zstd)),
            (b"\x5f\x2a\x4d\x18", Some(Format::Zstd)),
            (b"\x60\x2a\x4d\x18", None),
            (b"\xfd7zX", None),
            (b">seq", None),
            (b"\x1f", None),
            (b"", None),
        ] {
            assert_eq!(Format::of(bytes), format, "{bytes:?}");
        }
    }
}
