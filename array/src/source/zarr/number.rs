//! Types of elements as they are stored, and what becomes of them.

use std::io;

use half::f16;
use serde_json::Value;

use super::wrong;
use crate::dtype::DType;

/// A type that elements are stored in. Those that there are not here become the smallest one that holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    F16,
    F32,
    F64,
    /// Two `f32`.
    C32,
    /// Two `f64`.
    C64,
}

const NAMES: [(&str, Kind); 13] = [
    ("bool", Kind::Bool),
    ("int8", Kind::I8),
    ("int16", Kind::I16),
    ("int32", Kind::I32),
    ("int64", Kind::I64),
    ("uint8", Kind::U8),
    ("uint16", Kind::U16),
    ("uint32", Kind::U32),
    ("float16", Kind::F16),
    ("float32", Kind::F32),
    ("float64", Kind::F64),
    ("complex64", Kind::C32),
    ("complex128", Kind::C64),
];

impl Kind {
    /// By its name in Zarr, which is NumPy's.
    pub fn named(name: &str) -> io::Result<Self> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|&(_, kind)| kind).ok_or_else(|| {
            wrong(format!("its elements are of type {name}, which there is not here (uint64 would not fit)"))
        })
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::F64 | Self::C32 => 8,
            Self::C64 => 16,
        }
    }

    /// Bytes of a number: a complex one is two of them.
    pub fn part(self) -> usize {
        if matches!(self, Self::C32 | Self::C64) { self.size() / 2 } else { self.size() }
    }

    /// What elements are in memory.
    pub fn dtype(self) -> DType {
        match self {
            Self::Bool => DType::Bool,
            Self::I8 | Self::I16 | Self::I32 | Self::U8 | Self::U16 => DType::I32,
            Self::I64 | Self::U32 => DType::I64,
            Self::F16 | Self::F32 => DType::F32,
            Self::F64 => DType::F64,
            Self::C32 | Self::C64 => DType::C64,
        }
    }

    /// Whether elements in little-endian order are stored as they are in memory.
    pub fn is_native(self) -> bool {
        matches!(self, Self::Bool | Self::I32 | Self::I64 | Self::F32 | Self::F64 | Self::C64)
    }

    /// Takes elements that are so many bytes apart out of `from`, into `to` as they are in memory.
    pub fn convert(self, is_big: bool, from: &[u8], step: usize, to: &mut [u8]) {
        if self.is_native() && step == self.size() && (!is_big || self.size() == 1) {
            to.copy_from_slice(&from[..to.len()]);
            return;
        }
        let part = if is_big { self.part() } else { 1 };
        let from = (from, step, part);
        match self {
            Self::Bool => each(from, to, |x: [u8; 1]| x),
            Self::I32 | Self::F32 => each(from, to, |x: [u8; 4]| x),
            Self::I64 | Self::F64 => each(from, to, |x: [u8; 8]| x),
            Self::C64 => each(from, to, |x: [u8; 16]| x),
            Self::I8 => each(from, to, |x| i32::from(i8::from_le_bytes(x)).to_le_bytes()),
            Self::I16 => each(from, to, |x| i32::from(i16::from_le_bytes(x)).to_le_bytes()),
            Self::U8 => each(from, to, |x| i32::from(u8::from_le_bytes(x)).to_le_bytes()),
            Self::U16 => each(from, to, |x| i32::from(u16::from_le_bytes(x)).to_le_bytes()),
            Self::U32 => each(from, to, |x| i64::from(u32::from_le_bytes(x)).to_le_bytes()),
            Self::F16 => each(from, to, |x| f16::from_le_bytes(x).to_f32().to_le_bytes()),
            Self::C32 => each(from, to, |x: [u8; 8]| {
                let mut both = [0; 16];
                for (x, to) in x.as_chunks().0.iter().zip(both.as_chunks_mut().0) {
                    *to = f64::from(f32::from_le_bytes(*x)).to_le_bytes();
                }
                both
            }),
        }
    }

    /// An element of a fill value (`fill_value` of the metadata), as it is in memory.
    pub fn fill(self, value: &Value) -> io::Result<Vec<u8>> {
        let none = || wrong(format!("its fill value {value} is none of its type"));
        let stored = match self {
            Self::Bool => vec![u8::from(value.as_bool().ok_or_else(none)?)],
            Self::F16 | Self::F32 | Self::F64 => self.real(value).ok_or_else(none)?,
            Self::C32 | Self::C64 => {
                let pair = value.as_array().filter(|pair| pair.len() == 2).ok_or_else(none)?;
                let parts = pair.iter().map(|part| self.real(part).ok_or_else(none));
                parts.collect::<io::Result<Vec<_>>>()?.concat()
            }
            _ => {
                // Some write integers as numbers with a point.
                let whole = value.as_f64().filter(|x| x.fract() == 0.0 && x.abs() < 2_f64.powi(53));
                let number = value.as_i64().or(whole.map(|x| x as i64)).ok_or_else(none)?;
                let (low, high) = match self {
                    Self::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
                    Self::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
                    Self::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
                    Self::U8 => (0, i64::from(u8::MAX)),
                    Self::U16 => (0, i64::from(u16::MAX)),
                    Self::U32 => (0, i64::from(u32::MAX)),
                    _ => (i64::MIN, i64::MAX),
                };
                if !(low..=high).contains(&number) {
                    return Err(none());
                }
                number.to_le_bytes()[..self.size()].to_vec()
            }
        };
        let mut element = vec![0; self.dtype().size()];
        self.convert(false, &stored, self.size(), &mut element);
        Ok(element)
    }

    /// A floating-point number of a fill value, as it would be stored: a number, the name of one that JSON
    /// has not, or its bits.
    fn real(self, value: &Value) -> Option<Vec<u8>> {
        let number = match value {
            Value::Number(number) => number.as_f64()?,
            Value::String(text) => match text.as_str() {
                "NaN" => f64::NAN,
                "Infinity" => f64::INFINITY,
                "-Infinity" => f64::NEG_INFINITY,
                bits => {
                    let digits = bits.strip_prefix("0x").filter(|digits| digits.len() == 2 * self.part())?;
                    let bits = u64::from_str_radix(digits, 16).ok()?;
                    return Some(bits.to_le_bytes()[..self.part()].to_vec());
                }
            },
            _ => return None,
        };
        Some(match self.part() {
            2 => f16::from_f64(number).to_le_bytes().to_vec(),
            4 => (number as f32).to_le_bytes().to_vec(),
            _ => number.to_le_bytes().to_vec(),
        })
    }
}

/// Elements of N bytes, so many bytes apart, whose numbers of so many bytes are the other way round, become
/// elements of M bytes.
fn each<const N: usize, const M: usize>(
    (from, step, part): (&[u8], usize, usize),
    to: &mut [u8],
    convert: impl Fn([u8; N]) -> [u8; M],
) {
    for (number, to) in to.as_chunks_mut::<M>().0.iter_mut().enumerate() {
        let mut element = [0; N];
        element.copy_from_slice(&from[number * step..][..N]);
        if part > 1 {
            element.chunks_exact_mut(part).for_each(<[u8]>::reverse);
        }
        *to = convert(element);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_values() {
        let fill = |kind: Kind, json: &str| kind.fill(&serde_json::from_str(json).unwrap());
        let f64s = |json: &str| f64::from_le_bytes(fill(Kind::F64, json).unwrap().try_into().unwrap());
        assert_eq!([f64s("1.5"), f64s("-3"), f64s("0.1")], [1.5, -3.0, 0.1]);
        assert_eq!([f64s("\"-Infinity\""), f64s("\"0x3ff8000000000000\"")], [f64::NEG_INFINITY, 1.5]);
        assert!(f64s("\"NaN\"").is_nan());
        assert_eq!(fill(Kind::F32, "\"0x3fc00000\"").unwrap(), 1.5_f32.to_le_bytes());
        assert_eq!(fill(Kind::F16, "\"0x3c00\"").unwrap(), 1_f32.to_le_bytes());
        assert_eq!(fill(Kind::F16, "2").unwrap(), 2_f32.to_le_bytes());
        assert_eq!(fill(Kind::Bool, "true").unwrap(), [1]);
        assert_eq!(fill(Kind::I8, "-5").unwrap(), (-5_i32).to_le_bytes());
        assert_eq!(fill(Kind::U32, "4294967295").unwrap(), 4_294_967_295_i64.to_le_bytes());
        assert_eq!(fill(Kind::I64, "-9223372036854775808").unwrap(), i64::MIN.to_le_bytes());
        assert_eq!(fill(Kind::I16, "7.0").unwrap(), 7_i32.to_le_bytes());
        let pair = [1.5_f64.to_le_bytes(), f64::INFINITY.to_le_bytes()].concat();
        assert_eq!(fill(Kind::C32, "[1.5, \"Infinity\"]").unwrap(), pair);
        assert_eq!(fill(Kind::C64, "[\"0x3ff8000000000000\", \"Infinity\"]").unwrap(), pair);
        for (kind, json) in [
            (Kind::U8, "-1"),
            (Kind::U8, "256"),
            (Kind::I32, "1.5"),
            (Kind::Bool, "0"),
            (Kind::F64, "\"0x3fc00000\""),
            (Kind::F64, "null"),
            (Kind::C64, "1"),
        ] {
            let error = fill(kind, json).unwrap_err().to_string();
            assert!(error.contains(json), "{error}");
        }
    }

    #[test]
    fn elements_that_are_apart_and_the_other_way_round() {
        let mut to = [0; 8];
        Kind::I16.convert(true, &[0xff, 0xfe, 9, 9, 1, 2], 4, &mut to);
        assert_eq!(to, [(-2_i32).to_le_bytes(), 258_i32.to_le_bytes()].concat()[..]);
        let mut to = [0; 16];
        let stored = [1.5_f32.to_be_bytes(), (-2_f32).to_be_bytes()].concat();
        Kind::C32.convert(true, &stored, 8, &mut to);
        assert_eq!(to, [1.5_f64.to_le_bytes(), (-2_f64).to_le_bytes()].concat()[..]);
        let stored = [1.5_f64.to_be_bytes(), (-2_f64).to_be_bytes()].concat();
        Kind::C64.convert(true, &stored, 16, &mut to);
        assert_eq!(to, [1.5_f64.to_le_bytes(), (-2_f64).to_le_bytes()].concat()[..]);
    }
}
