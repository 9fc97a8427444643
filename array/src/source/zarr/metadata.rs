//! What an array says of itself: `zarr.json`, version 3 (zarr-specs.readthedocs.io/en/latest/v3/core).

use std::io;

use serde_json::{Map, Value, json};

use super::chain::{Chain, Inner, Shards};
use super::number::Kind;
use super::packing::Packing;
use super::{Compression, wrong};
use crate::dtype::DType;
use crate::shape::{count, is_possible};

#[derive(Debug)]
pub(super) struct Metadata {
    pub kind: Kind,
    pub shape: Vec<usize>,
    pub chunk: Vec<usize>,
    /// An element that was never written, as it is in memory.
    pub fill: Vec<u8>,
    pub keys: Keys,
    pub chain: Chain,
}

/// How files of chunks are named.
#[derive(Debug)]
pub(super) struct Keys {
    has_letter: bool,
    separator: String,
}

impl Keys {
    /// The file of a chunk.
    pub fn name(&self, place: &[usize]) -> String {
        let letter = self.has_letter.then(|| "c".to_owned());
        let parts: Vec<String> = letter.into_iter().chain(place.iter().map(usize::to_string)).collect();
        // An array without an axis has one chunk.
        if parts.is_empty() { "0".into() } else { parts.join(&self.separator) }
    }
}

fn not_supported(what: &str, name: &str) -> io::Error {
    wrong(format!("{what} {name} is not supported"))
}

/// A number that is at most what a length can be.
fn length(value: &Value) -> io::Result<usize> {
    let length = value.as_u64().and_then(|length| usize::try_from(length).ok());
    length
        .filter(|&length| length <= isize::MAX as usize)
        .ok_or_else(|| wrong(format!("{value} is no length")))
}

fn lengths(value: &Value) -> io::Result<Vec<usize>> {
    let list = value.as_array().ok_or_else(|| wrong(format!("{value} is no list of lengths")))?;
    list.iter().map(length).collect()
}

/// An extension that a member is: its name, and how it is set.
fn named<'a>(member: &str, value: &'a Value) -> io::Result<(&'a str, &'a Value)> {
    match value {
        Value::Null => Err(wrong(format!("there is no {member}"))),
        Value::String(name) => Ok((name, &Value::Null)),
        Value::Object(members) => {
            let name = members.get("name").and_then(Value::as_str);
            let name = name.ok_or_else(|| wrong(format!("{value} has no name")))?;
            Ok((name, members.get("configuration").unwrap_or(&Value::Null)))
        }
        other => Err(wrong(format!("{member}: {other} is no name"))),
    }
}

/// What an array of version 3 may say that changes nothing here.
const IGNORED: [&str; 3] = ["attributes", "dimension_names", "consolidated_metadata"];
const KNOWN: [&str; 9] = [
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "storage_transformers",
];

impl Metadata {
    /// From the text of `zarr.json`.
    pub fn parse(text: &str) -> io::Result<Self> {
        let json = super::json::parse(text).map_err(|error| wrong(format!("zarr.json: {error}")))?;
        let members = json.as_object().ok_or_else(|| wrong("zarr.json has no members"))?;
        if json["zarr_format"] != 3 {
            return Err(wrong(format!("version {} of Zarr is not known", json["zarr_format"])));
        }
        if json["node_type"] != "array" {
            return Err(wrong(format!("it is no array but of type {}", json["node_type"])));
        }
        understood(members)?;
        let (name, _) = named("data_type", &json["data_type"])?;
        let kind = Kind::named(name)?;
        let shape = lengths(&json["shape"])?;
        let (grid, set) = named("chunk_grid", &json["chunk_grid"])?;
        if grid != "regular" {
            return Err(not_supported("the grid of chunks", grid));
        }
        let mut chunk = lengths(&set["chunk_shape"])?;
        for (chunk, _) in chunk.iter_mut().zip(&shape).filter(|(_, length)| **length == 0) {
            // Of an axis without elements some make chunks without elements.
            *chunk = (*chunk).max(1);
        }
        let is_right = chunk.len() == shape.len() && chunk.iter().all(|&length| length > 0);
        let bytes =
            count(&chunk).checked_mul(kind.dtype().size()).filter(|&bytes| bytes <= isize::MAX as usize);
        if !is_right || bytes.is_none() {
            return Err(wrong(format!("there can be no chunks of {chunk:?} of an array of {shape:?}")));
        }
        if !is_possible(&shape, kind.dtype().size()) {
            return Err(wrong(format!("{shape:?} are more elements than are known here (2^48)")));
        }
        Ok(Self {
            kind,
            fill: kind.fill(&json["fill_value"])?,
            keys: keys(&json["chunk_key_encoding"])?,
            chain: chain(&json["codecs"], kind, &chunk)?,
            shape,
            chunk,
        })
    }
}

fn understood(members: &Map<String, Value>) -> io::Result<()> {
    for (name, value) in members {
        let is_known = KNOWN.contains(&name.as_str()) || IGNORED.contains(&name.as_str());
        if !is_known && value["must_understand"] != false {
            return Err(not_supported("the extension", name));
        }
    }
    let transformers = members.get("storage_transformers").and_then(Value::as_array);
    match transformers.and_then(|list| list.first()) {
        Some(first) => Err(not_supported("the storage transformer", named("storage_transformers", first)?.0)),
        None => Ok(()),
    }
}

fn keys(value: &Value) -> io::Result<Keys> {
    let (name, set) = named("chunk_key_encoding", value)?;
    let has_letter = match name {
        "default" => true,
        "v2" => false,
        other => return Err(not_supported("the encoding of chunks' names", other)),
    };
    let separator = match &set["separator"] {
        Value::Null => (if has_letter { "/" } else { "." }).to_owned(),
        Value::String(text) if text == "/" || text == "." => text.clone(),
        other => return Err(wrong(format!("{other} cannot separate numbers"))),
    };
    Ok(Keys { has_letter, separator })
}

/// The codecs of a chunk.
fn chain(value: &Value, kind: Kind, chunk: &[usize]) -> io::Result<Chain> {
    let list = value.as_array().ok_or_else(|| wrong("there is no list of codecs"))?;
    let mut order: Option<Vec<usize>> = None;
    let (mut inner, mut packings) = (None, Vec::new());
    for codec in list {
        let (name, set) = named("codecs", codec)?;
        let misplaced = || wrong(format!("the codec {name} cannot be where it is"));
        let packing = match name {
            "gzip" => Packing::Gzip(0),
            "zstd" => Packing::Zstd,
            "blosc" => Packing::Blosc,
            "crc32c" => Packing::Crc32c,
            "numcodecs.zlib" => Packing::Zlib,
            _ if inner.is_some() => return Err(not_supported("the codec", name)),
            "transpose" => {
                let next = permutation(&set["order"], chunk.len())?;
                order = Some(match order {
                    Some(before) => next.iter().map(|&axis| before[axis]).collect(),
                    None => next,
                });
                continue;
            }
            "bytes" => {
                let is_big = is_big(set)?;
                inner = Some(Inner::Bytes { is_big });
                continue;
            }
            "sharding_indexed" if order.is_some() => {
                return Err(not_supported("the codec", "transpose before sharding_indexed"));
            }
            "sharding_indexed" => {
                inner = Some(Inner::Shards(Box::new(shards(set, kind, chunk)?)));
                continue;
            }
            other => return Err(not_supported("the codec", other)),
        };
        if inner.is_none() {
            return Err(misplaced());
        }
        // A limit of what is between them doubles with each.
        if packings.len() == MOST_PACKINGS {
            return Err(not_supported("to compress more than four times:", name));
        }
        packings.push(packing);
    }
    // What changes nothing is none.
    let order = order.filter(|order| !order.is_sorted());
    let inner = inner.ok_or_else(|| wrong("no codec makes bytes of elements"))?;
    Ok(Chain { order, inner, packings })
}

const MOST_PACKINGS: usize = 4;

fn permutation(value: &Value, axes: usize) -> io::Result<Vec<usize>> {
    let order = lengths(value)?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted.iter().copied().eq(0..axes) {
        Ok(order)
    } else {
        Err(wrong(format!("{value} is no order of axes")))
    }
}

/// The codec `bytes`.
fn is_big(set: &Value) -> io::Result<bool> {
    match &set["endian"] {
        Value::String(text) if text == "little" => Ok(false),
        Value::String(text) if text == "big" => Ok(true),
        // Where it makes no difference it need not be said, and elsewhere it is not by all.
        Value::Null => Ok(false),
        other => Err(wrong(format!("{other} is no order of bytes"))),
    }
}

fn shards(set: &Value, kind: Kind, chunk: &[usize]) -> io::Result<Shards> {
    let inner = lengths(&set["chunk_shape"])?;
    let divides = |(&length, &inner): (&usize, &usize)| inner > 0 && length.is_multiple_of(inner);
    if inner.len() != chunk.len() || !chunk.iter().zip(&inner).all(divides) {
        return Err(wrong(format!("a shard of {chunk:?} cannot be cut into chunks of {inner:?}")));
    }
    let at_start = match &set["index_location"] {
        Value::Null => false,
        Value::String(text) if text == "end" => false,
        Value::String(text) if text == "start" => true,
        other => return Err(wrong(format!("an index of a shard cannot be at {other}"))),
    };
    let index = chain(&set["index_codecs"], Kind::I64, &inner)?;
    let is_summed = index.order.is_none() && index.packings.iter().all(|&packing| packing == Packing::Crc32c);
    let Inner::Bytes { is_big } = index.inner else {
        return Err(not_supported("an index of a shard that is", "sharded"));
    };
    if !is_summed {
        return Err(not_supported("an index of a shard that is", "compressed"));
    }
    let chain = chain(&set["codecs"], kind, &inner)?;
    Ok(Shards { chunk: inner, chain, at_start, is_big, sums: index.packings.len() })
}

/// The text of `zarr.json` of an array that is written, and what was done to its chunks' bytes.
pub(super) fn written(
    dtype: DType,
    shape: &[usize],
    chunk: &[usize],
    compression: Compression,
) -> (String, Vec<Packing>) {
    let fill = match dtype {
        DType::Bool => json!(false),
        DType::I32 | DType::I64 => json!(0),
        DType::F32 | DType::F64 => json!(0.0),
        DType::C64 => json!([0.0, 0.0]),
    };
    let bytes = if dtype.size() == 1 {
        json!({ "name": "bytes" })
    } else {
        json!({ "name": "bytes", "configuration": { "endian": "little" } })
    };
    let (codecs, packings) = match compression {
        Compression::None => (vec![bytes], vec![]),
        Compression::Gzip(level) => {
            let level = level.min(9);
            let gzip = json!({ "name": "gzip", "configuration": { "level": level } });
            (vec![bytes, gzip], vec![Packing::Gzip(level)])
        }
        Compression::Zstd => {
            // The level is what others would do it at.
            let zstd = json!({ "name": "zstd", "configuration": { "level": 1, "checksum": true } });
            (vec![bytes, zstd], vec![Packing::Zstd])
        }
    };
    let text = json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": dtype.name(),
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": chunk } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "fill_value": fill,
        "codecs": codecs,
        "attributes": {},
        "storage_transformers": [],
    });
    (format!("{text:#}\n"), packings)
}
