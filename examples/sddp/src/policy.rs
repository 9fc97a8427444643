//! Policies on disk: JSON, the same bytes for the same training.
//!
//! ```json
//! {"format": "bdrun-sddp policy", "version": 1, "case": "name", "digest": "32 hexadecimal digits",
//!  "seed": 1, "history": [{"number": 1, "lower": 0.5, …}], "cuts": [[α, β₁, …, βₙ, α, …], …]}
//! ```
//! `cuts` has a list for each stage, α in M$ and β in M$/hm³.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use bdrun_hybrid::SharedMemory;
use serde::{Deserialize, Serialize, Serializer};

use crate::bounds::Iteration;
use crate::case::Case;
use crate::error::{Error, Result};
use crate::passes::Problem;
use crate::pool::{Cuts, Openings, Pool};

const FORMAT: &str = "bdrun-sddp policy";
const VERSION: u32 = 1;

/// What is in the file. `C` is what has a stage's cuts.
#[derive(Serialize, Deserialize)]
struct Document<C> {
    format: String,
    version: u32,
    case: String,
    digest: String,
    seed: u64,
    history: Vec<Iteration>,
    cuts: Vec<C>,
}

/// Cuts of a stage as one list.
struct Parts<'a>(Cuts<'a>, usize);

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.of(self.1).flatten())
    }
}

/// Writes what was trained: beside `path`, then renamed over it, so that there is the old policy or the new
/// one whatever happens.
///
/// # Errors
/// If the file cannot be written.
pub fn save(path: &Path, case: &Case, seed: u64, problem: &Problem, history: &[Iteration]) -> Result<()> {
    let document = Document {
        format: FORMAT.into(),
        version: VERSION,
        case: case.name.clone(),
        digest: case.digest(),
        seed,
        history: history.to_vec(),
        cuts: (0..case.stages.len()).map(|stage| Parts(problem.pool.view(), stage)).collect(),
    };
    replace(path, |file| serde_json::to_writer(file, &document).map_err(Into::into))
}

/// Whether a file could be written there, before that is worth hours.
///
/// # Errors
/// If not.
pub fn writable(path: &Path) -> Result<()> {
    let aside = regular(path).map(|path| aside(&path));
    aside
        .and_then(|aside| File::create(&aside).and_then(|_| std::fs::remove_file(&aside)))
        .map_err(Error::file(path))
}

/// The regular file that a path is the name of, or will be, behind links. A device or a pipe would not be
/// written to but replaced, and a directory only found to be one at the end.
fn regular(path: &Path) -> std::io::Result<PathBuf> {
    match path.metadata() {
        Ok(there) if there.is_dir() => Err(std::io::ErrorKind::IsADirectory.into()),
        Ok(there) if there.is_file() => path.canonicalize(),
        Ok(_) => Err(std::io::Error::other("what is there is no regular file")),
        Err(_) if path.is_symlink() => {
            Err(std::io::Error::other("what is there is a link that leads nowhere"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(error),
    }
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

/// Writes a file aside and renames it.
///
/// # Errors
/// If that cannot be done; what stood there before still does.
pub fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let written = |path: &Path, aside: &Path| {
        let mut file = BufWriter::new(File::create(aside)?);
        write(&mut file)?;
        file.into_inner()?.sync_all()?;
        std::fs::rename(aside, path)
    };
    let replaced = regular(path).and_then(|path| {
        let aside = aside(&path);
        written(&path, &aside).inspect_err(|_| _ = std::fs::remove_file(&aside))
    });
    replaced.map_err(Error::file(path))
}

/// Reads a policy of `case` (a collective: rank 0 reads, and sends each stage's cuts to all).
///
/// # Errors
/// If the file is not such a policy of that case (on rank 0, whose error it is to
/// [abort](Communicator::abort) for), or ranks cannot communicate.
pub fn load<C: SharedMemory>(
    (comm, node): (&C, &C),
    case: &Case,
    path: &Path,
    share: bool,
) -> Result<(Problem, Vec<Iteration>)> {
    let mut document = if comm.rank() == 0 { Some(read(path, case)?) } else { None };
    let width = case.reservoirs.len() + 1;
    let mut counts: Vec<u64> = match &document {
        Some(document) => document.cuts.iter().map(|cuts| (cuts.len() / width) as u64).collect(),
        None => vec![0; case.stages.len()],
    };
    comm.broadcast(&mut counts, 0)?;
    let all = counts.iter().sum::<u64>() as usize;
    let openings = Openings::new(node, case, share)?;
    let mut problem = Problem::new(case, openings, Pool::new(node, case, all, share)?)?;
    for (stage, count) in counts.iter().enumerate() {
        let mut cuts = match &mut document {
            Some(document) => std::mem::take(&mut document.cuts[stage]),
            None => vec![0.0; *count as usize * width],
        };
        comm.broadcast(&mut cuts, 0)?;
        problem.pool.bring(stage, cuts);
    }
    problem.pool.keep()?;
    Ok((problem, document.map_or(vec![], |document| document.history)))
}

fn read(path: &Path, case: &Case) -> Result<Document<Vec<f64>>> {
    let refuse = |reason: String| Error::Policy { path: path.into(), reason };
    let file = File::open(path).map_err(Error::file(path))?;
    let document: Document<Vec<f64>> = serde_json::from_reader(BufReader::new(file))
        .map_err(|error| refuse(format!("it is no policy of this program: {error}")))?;
    let Document { format, version, case: name, digest, cuts, .. } = &document;
    if format != FORMAT || *version != VERSION {
        return Err(refuse(format!(
            "it is a '{format}' of version {version}, not a '{FORMAT}' of {VERSION}"
        )));
    }
    if *digest != case.digest() {
        return Err(refuse(format!(
            "it is of another case ('{name}', digest {digest}), or that was changed since"
        )));
    }
    let width = case.reservoirs.len() + 1;
    if cuts.len() != case.stages.len() || cuts.iter().any(|cuts| cuts.len() % width != 0) {
        return Err(refuse("its cuts do not fit its case".into()));
    }
    Ok(document)
}
