//! Compressed input: gzip (bgzip's too), xz and zstd, told apart by their first bytes; of several members,
//! streams or frames one after another all are read. The decoders are Rust, so what they hold lies in this
//! program's heap, and counts, as everything else does.

use std::io::{BufRead, BufReader, Cursor, Error, ErrorKind, Read, Result};

use flate2::bufread::GzDecoder;
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
            Self::Gzip => Box::new(Named(self, Members::new(reader))),
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

/// The members of gzip, one after another. Behind the last there may be zeros, with which tapes are filled
/// up.
struct Members<R> {
    decoder: GzDecoder<Source<R>>,
    /// Has the present one no data?
    is_empty: bool,
    /// Zeros have come, and nothing else may.
    zeros: bool,
    over: bool,
}

/// What members are read from: it goes on from one to the next.
struct Source<R>(Option<R>);

impl<R: BufRead> Members<R> {
    fn new(reader: R) -> Self {
        let decoder = GzDecoder::new(Source(Some(reader)));
        Self { decoder, is_empty: true, zeros: false, over: false }
    }

    /// Go on behind a member.
    fn begin(&mut self) -> Result<()> {
        let source = self.decoder.get_mut();
        loop {
            let bytes = source.fill_buf()?;
            let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
            if bytes.is_empty() {
                self.over = true;
                return self.is_whole();
            }
            if zeros == 0 {
                break;
            }
            self.zeros = true;
            source.consume(zeros);
        }
        if self.zeros {
            return Err(Error::new(ErrorKind::InvalidData, "something else behind zeros at the end"));
        }
        let source = Source(source.0.take());
        self.decoder.reset(source);
        self.is_empty = true;
        Ok(())
    }

    /// bgzip cuts what it writes into members, and ends it with an empty one: so they may not end anywhere.
    fn is_whole(&self) -> Result<()> {
        let extra = self.decoder.header().and_then(|header| header.extra());
        if self.is_empty || !extra.is_some_and(is_of_bgzip) {
            return Ok(());
        }
        let what = "the empty block is missing with which bgzip ends a file: it is cut off (one that is known \
                    to be whole: gzip -dc FILE | gzip > OTHER)";
        Err(Error::new(ErrorKind::InvalidData, what))
    }
}

/// Is there bgzip's field, BC, among a member's extra ones?
fn is_of_bgzip(mut extra: &[u8]) -> bool {
    while let [a, b, low, high, rest @ ..] = extra {
        if [*a, *b] == *b"BC" {
            return true;
        }
        extra = rest.get(usize::from(u16::from_le_bytes([*low, *high]))..).unwrap_or_default();
    }
    false
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        while !out.is_empty() && !self.over {
            let read = self.decoder.read(out)?;
            if read > 0 {
                self.is_empty = false;
                return Ok(read);
            }
            self.begin()?;
        }
        Ok(0)
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        self.0.as_mut().map_or(Ok(0), |reader| reader.read(out))
    }
}

impl<R: BufRead> BufRead for Source<R> {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        self.0.as_mut().map_or(Ok(&[]), R::fill_buf)
    }

    fn consume(&mut self, bytes: usize) {
        if let Some(reader) = &mut self.0 {
            reader.consume(bytes);
        }
    }
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
