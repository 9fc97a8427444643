//! Bytes compressed in each format that is read.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("compressed");
    encoder.finish().expect("compressed")
}

pub fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = XzWriter::new(Vec::new(), XzOptions::with_preset(6)).expect("begun");
    encoder.write_all(bytes).expect("compressed");
    encoder.finish().expect("compressed")
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}
