//! Computing expressions: into memory, or into files.

use std::ffi::c_char;

use bdrun_array::source::hdf5::Dataset;
use bdrun_array::source::zarr::{Compression, ZarrArray};
use bdrun_array::source::{Hdf5Writer, Held, NpyWriter, Sink, ZarrWriter};
use bdrun_array::{Array, Block, Error, Progress, Settings, Threads};
use serde_json::Value;

use super::{Raised, arrays, json, make, wrong};
use crate::guarded;

/// How far a computation is, and what it did.
pub struct Computation {
    progress: Progress,
}

/// Something to be asked how far it is, and to be cancelled. It is given back to [`bdrun_compute_free`].
#[unsafe(no_mangle)]
pub extern "C" fn bdrun_compute_new() -> *mut Computation {
    Box::into_raw(Box::new(Computation { progress: Progress::default() }))
}

/// # Safety
/// It was made here, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_compute_free(computation: *mut Computation) {
    // SAFETY: as is asked for.
    drop(unsafe { Box::from_raw(computation) });
}

/// It ends as soon as what runs has ended.
///
/// # Safety
/// It was made here, and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_compute_cancel(computation: *const Computation) {
    // SAFETY: as is asked for.
    unsafe { &*computation }.progress.cancel();
}

/// Which part of it is done, from 0 to 1.
///
/// # Safety
/// It was made here, and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_compute_part(computation: *const Computation) -> f64 {
    // SAFETY: as is asked for.
    unsafe { &*computation }.progress.stage().part
}

/// Computes `count` arrays, as `how` says: `memory` in bytes, or null; `threads`, and whether it may be
/// `fewer` where there is no memory for so many; `scratch`; and `to`, for each one where it goes: null
/// (into `blocks`; each is given back to `bdrun_block_free`), `{"npy": path}`, `{"raw": path}`, `{"hdf5":
/// path, "dataset": name, "chunk": lengths}` or `{"zarr": path, "chunk": lengths, "compression": name}`,
/// all with `resume`. What it did is put into `did`: bytes that blocks took at most, written to scratch,
/// read from there, and from sources again; tasks. 0, or -1 with an error.
///
/// # Safety
/// `how` is a text with a zero behind it; there are `count` handles, room for as many blocks, and 5 numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bdrun_compute(
    computation: *const Computation,
    how: *const c_char,
    handles: *const *const Array,
    count: u32,
    blocks: *mut *mut Block,
    did: *mut u64,
) -> i32 {
    guarded(-1, || {
        // SAFETY: as is asked for.
        let (how, of, progress) = unsafe { (json(how)?, arrays(handles, count), &(*computation).progress) };
        let (results, report) = compute(&how, &of, progress)?;
        for (at, result) in results.into_iter().enumerate() {
            let block = result.map_or(std::ptr::null_mut(), |block| Box::into_raw(Box::new(block)));
            // SAFETY: there is room for as many blocks as arrays.
            unsafe { blocks.add(at).write(block) };
        }
        // SAFETY: there are five.
        unsafe { did.cast::<[u64; 5]>().write_unaligned(report) };
        Ok(0)
    })
}

enum To {
    Memory(Held),
    Npy(NpyWriter),
    Hdf5(Hdf5Writer),
    Zarr(ZarrWriter),
}

/// How chunks are compressed, by name: `gzip` may have its level behind it (`gzip:9`).
fn compression(name: &Value) -> Result<Compression, Raised> {
    if name.is_null() {
        return Ok(Compression::None);
    }
    let text = name.as_str().unwrap_or_default();
    let level = text.strip_prefix("gzip:").and_then(|level| level.parse().ok());
    match (text, level) {
        ("gzip", _) => Ok(Compression::Gzip(5)),
        ("zstd", _) => Ok(Compression::Zstd),
        (_, Some(level @ 0..=9)) => Ok(Compression::Gzip(level)),
        _ => Err(Raised(format!(
            "ValueError:compression {name}: None, 'gzip', 'gzip:0' to 'gzip:9' or 'zstd'"
        ))),
    }
}

impl To {
    /// With the array as it is stored: what is compressed is in blocks of whole chunks.
    fn new(to: &Value, array: &Array) -> Result<(Self, Array), Raised> {
        let mut chunk = if to["chunk"].is_null() { make::chunk(array) } else { make::sizes(&to["chunk"])? };
        if chunk.len() != array.dimensions() {
            let (given, axes) = (chunk.len(), array.dimensions());
            return Err(Raised(format!("ValueError:chunks along {given} axes, of an array of {axes}")));
        }
        for (chunk, &length) in chunk.iter_mut().zip(array.shape()) {
            // As in `rechunk`: 0 is the whole axis.
            *chunk = if *chunk == 0 { length } else { *chunk };
        }
        let compression = compression(&to["compression"])?;
        let array = if compression == Compression::None { array.clone() } else { array.aligned(&chunk)? };
        let identity = to["resume"].as_bool().unwrap_or(false).then(|| array.identity());
        let (dtype, shape) = (array.dtype(), array.shape());
        let path = |name: &str| (!to[name].is_null()).then(|| make::path(&to[name])).transpose();
        let created = if to.is_null() {
            let no_room = |error| Error::File { path: "memory for the result".into(), error };
            Self::Memory(Held::new(dtype, shape).map_err(no_room)?)
        } else if let Some(path) = path("npy")? {
            Self::Npy(NpyWriter::create(&path, dtype, shape, identity)?)
        } else if let Some(path) = path("raw")? {
            Self::Npy(NpyWriter::create_raw(&path, dtype, shape, identity)?)
        } else if let Some(path) = path("zarr")? {
            let written = ZarrArray { dtype, shape, chunk: &chunk, compression };
            Self::Zarr(ZarrWriter::create(&path, written, identity)?)
        } else {
            let path = path("hdf5")?.ok_or_else(|| wrong("it goes nowhere"))?;
            let dataset = Dataset { name: make::text(&to["dataset"])?, dtype, shape, chunk: &chunk };
            Self::Hdf5(Hdf5Writer::create(&path, dataset, identity)?)
        };
        Ok((created, array))
    }

    fn sink(&self) -> &dyn Sink {
        match self {
            Self::Memory(held) => held,
            Self::Npy(writer) => writer,
            Self::Hdf5(writer) => writer,
            Self::Zarr(writer) => writer,
        }
    }
}

/// What this process has in memory, in bytes, that is no file's, as `_memory.private` has it: pages of
/// files, of modules for one, go when there is no memory.
fn own() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) << 10
}

/// What is said of a budget that is too small.
struct Budget {
    memory: u64,
    own: u64,
    /// Of results in memory.
    kept: u64,
    /// How many there are, and what they take, once that is known.
    threads: Option<(usize, u64)>,
}

impl Budget {
    fn left(&self) -> u64 {
        let threads = self.threads.map_or(0, |(_, bytes)| bytes);
        self.memory.saturating_sub(self.own.saturating_add(self.kept).saturating_add(threads))
    }

    fn too_little(&self, error: &str) -> Raised {
        let mib = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
        let threads = |(count, bytes)| format!(", {count} threads {}", mib(bytes));
        let threads = self.threads.map(threads).unwrap_or_default();
        Raised(format!(
            "MemoryError:{error}; {} of the budget of {} are left for blocks (this process takes {}, results in \
             memory {}{threads}): more memory=, fewer threads=, or smaller blocks",
            mib(self.left()),
            mib(self.memory),
            mib(self.own),
            mib(self.kept),
        ))
    }
}

type Computed = (Vec<Option<Block>>, [u64; 5]);

fn compute(how: &Value, of: &[Array], progress: &Progress) -> Result<Computed, Raised> {
    let mut settings = Settings::default();
    let threads = how["threads"].as_u64().ok_or_else(|| wrong("no number of threads"))?;
    settings.threads = Threads { compute: threads as usize, transfer: 1 };
    if !how["scratch"].is_null() {
        settings.scratch = make::path(&how["scratch"])?;
    }
    let list = how["to"].as_array().ok_or_else(|| wrong("it goes nowhere"))?;
    let memory = how["memory"].as_u64();
    let into_memory = || list.iter().zip(of).filter(|(to, _)| to.is_null());
    let kept: u64 = into_memory().map(|(_, array)| make::bytes(array)).fold(0, u64::saturating_add);
    // Before memory is taken for a result that has no room.
    if let Some(memory) = memory {
        let budget = Budget { memory, own: own(), kept, threads: None };
        if budget.left() == 0 {
            return Err(budget.too_little("the budget is too small"));
        }
    }
    let to = list.iter().zip(of).map(|(to, array)| To::new(to, array)).collect::<Result<Vec<_>, _>>()?;
    let (to, of): (Vec<To>, Vec<Array>) = to.into_iter().unzip();
    let outputs: Vec<(Array, &dyn Sink)> = of.into_iter().zip(to.iter().map(To::sink)).collect();
    let mut prepared = settings.prepare(&outputs)?;
    if let Some(memory) = memory {
        // With the tasks and their plan, which of many small blocks are large.
        let mut budget = Budget { memory, own: own(), kept, threads: None };
        if how["fewer"].as_bool().unwrap_or(false) {
            prepared = prepared.on_fewer(budget.left());
        }
        budget.threads = Some((prepared.threads().compute, prepared.beside()));
        let within = budget.left().min(prepared.bound);
        prepared = prepared.within(within).map_err(|error| match error {
            Error::TooLarge(_) => budget.too_little(&error.to_string()),
            other => other.into(),
        })?;
    }
    let report = prepared.run(progress)?;
    let did = [report.peak, report.written, report.read, report.again, prepared.graph.len() as u64];
    drop(prepared);
    drop(outputs);
    let block = |to: To| match to {
        To::Memory(held) => Some(held.into_block()),
        To::Npy(_) | To::Hdf5(_) | To::Zarr(_) => None,
    };
    Ok((to.into_iter().map(block).collect(), did))
}
