//! bincode, in this one module: values between ranks and frames on the control socket, always with a limit.
//!
//! bincode 1.3.3 is final and unmaintained, by its authors' word complete; what makes it safe here is that
//! nothing is decoded from a stream, only from a slice of known length, with a limit and without trailing
//! bytes.

use bincode::Options;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest value in bytes that one message may carry.
pub const VALUE_LIMIT: u64 = 1 << 32;

fn options(limit: u64) -> impl Options {
    bincode::DefaultOptions::new().with_fixint_encoding().with_limit(limit).reject_trailing_bytes()
}

/// A value did not encode or decode.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WireError(#[from] Box<bincode::ErrorKind>);

/// Encode a value for a message.
pub fn encode_value<V: Serialize>(value: &V) -> Result<Vec<u8>, WireError> {
    Ok(options(VALUE_LIMIT).serialize(value)?)
}

/// Decode a value that [`encode_value`] made. Never reserves more than a small multiple of `bytes`.
pub fn decode_value<V: DeserializeOwned>(bytes: &[u8]) -> Result<V, WireError> {
    Ok(options(bytes.len() as u64).deserialize(bytes)?)
}

/// Encode a control frame.
pub fn encode_frame(frame: &crate::control::Frame) -> Result<Vec<u8>, WireError> {
    Ok(options(crate::control::FRAME_LIMIT as u64).serialize(frame)?)
}

/// Encode into a buffer without allocating; how many bytes.
pub fn encode_into<V: Serialize>(value: &V, into: &mut [u8]) -> Result<usize, WireError> {
    let room = into.len();
    let mut rest = into;
    options(room as u64).serialize_into(&mut rest, value)?;
    Ok(room - rest.len())
}

/// Decode a control frame from exactly its bytes.
pub fn decode_frame(bytes: &[u8]) -> Result<crate::control::Frame, WireError> {
    Ok(options(crate::control::FRAME_LIMIT as u64).deserialize(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{FRAME_LIMIT, FailureKind, Frame};
    use proptest::prelude::*;

    #[test]
    fn frames_survive() {
        let frame = Frame::Failed { kind: FailureKind::ScratchFull, bytes: 3, text: "disk".into() };
        assert_eq!(decode_frame(&encode_frame(&frame).unwrap()).unwrap(), frame);
    }

    #[test]
    fn trailing_bytes_and_long_lengths_are_refused() {
        let mut bytes = encode_frame(&Frame::Hello { protocol: 1 }).unwrap();
        bytes.push(0);
        assert!(decode_frame(&bytes).is_err());
        // A vector that claims 2^60 elements must not reserve for them.
        let mut huge = (1u64 << 60).to_le_bytes().to_vec();
        huge.extend([0; 12]);
        assert!(decode_value::<Vec<u64>>(&huge).is_err());
        assert!(
            encode_frame(&Frame::Failed {
                kind: FailureKind::Runtime,
                bytes: 0,
                text: "x".repeat(FRAME_LIMIT)
            })
            .is_err()
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_frame(&bytes);
            let _ = decode_value::<Vec<String>>(&bytes);
        }
    }
}
