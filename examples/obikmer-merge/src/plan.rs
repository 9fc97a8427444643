//! What rank 0 decides before anything is computed: lengths, layers, who is a source; and its claim on the
//! index.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::claim::{Claim, There};
use crate::error::{Context, Error, Result};
use crate::index::Index;
use crate::input::Inputs;
use crate::input::spool::Spool;
use crate::join::remainder::linked;
use crate::layer::format::Kind;
use crate::layer::path;
use crate::merge::{DEFAULT, MergeOptions};
use crate::sequence::kmer::Lengths;

/// What rank 0 decides and all others learn.
#[derive(Serialize, Deserialize)]
pub struct Plan {
    /// k and m.
    pub lengths: Lengths,
    /// The directory that becomes the index.
    pub partial: PathBuf,
    /// The node of rank 0.
    pub node: u32,
    /// An index with as many partitions as there are ranks, whose layers are kept.
    pub keep: Option<Index>,
    /// Inputs of each layer that is written. The last one is new; others are old ones, routed anew.
    pub stages: Vec<Inputs>,
    /// How many linked ends are few: see [`linked`].
    pub few: u64,
}

impl Plan {
    /// Layers of the index added to that stay as they are.
    pub fn kept_layers(&self) -> usize {
        self.keep.as_ref().map_or(0, |index| index.meta.layers)
    }

    /// All layers.
    pub fn layers(&self) -> usize {
        self.kept_layers() + self.stages.len()
    }

    /// Names of all sources.
    pub fn sources(&self) -> &[String] {
        self.stages.last().map_or(&[], |stage| &stage.sources)
    }
}

/// The directory in it in which copies of pipes are.
pub const SPOOL: &str = "spool";

/// Where copies of pipes are while the index is made.
pub fn spool(partial: &Path) -> PathBuf {
    partial.join(SPOOL)
}

type Stages = (Lengths, Option<Index>, Vec<Inputs>);

/// Look at everything; the directories are there afterwards. What is wrong is found before the index that is
/// there is touched, and most of it before pipes are read.
pub fn plan(ranks: usize, options: &MergeOptions) -> Result<(Plan, Claim)> {
    let out = &options.out;
    if options.add && options.inputs.is_empty() {
        return Err(Error::Usage("--add: nothing to add".into()));
    }
    // Before the index is looked at: what another job is about to change may be different in a moment.
    let claim = Claim::new(out)?;
    let option = if options.add { "--add" } else { "--force" };
    match claim.there() {
        There::Nothing if options.add => {
            return Err(Error::Usage(format!("--add: {} is not an index", out.display())));
        }
        There::Nothing => {}
        _ if !options.add && !options.force => {
            let what = format!("{} exists: --force replaces it, --add adds to it", out.display());
            return Err(Error::Usage(what));
        }
        There::Index(..) => {}
        There::Empty(_) if options.force => {}
        There::Mixed(other) => {
            let what = format!(
                "{option}: {} is not of this index, and would be lost: move it elsewhere",
                other.display()
            );
            return Err(Error::Index { path: out.clone(), what });
        }
        There::Empty(_) | There::Other => {
            let what = if options.add { "adds nothing to it" } else { "does not replace it" };
            return Err(Error::Usage(format!("{} is not an index: {option} {what}", out.display())));
        }
    }
    let mut spool = Spool::new(spool(claim.partial()));
    let (lengths, keep, stages) =
        if options.add { plan_addition(ranks, options, &mut spool)? } else { plan_new(options, &mut spool)? };
    let (partial, few) = (claim.partial().to_path_buf(), linked(options.budget));
    let plan = Plan { lengths, partial, node: options.node, keep, stages, few };
    for layer in 0..plan.layers() {
        if let Some(dir) = path(&plan.partial, layer, 0, Kind::Kmers).parent() {
            std::fs::create_dir(dir).context(|| format!("cannot create {}", dir.display()))?;
        }
    }
    Ok((plan, claim))
}

fn plan_new(options: &MergeOptions, spool: &mut Spool) -> Result<Stages> {
    let inputs = listed(&options.inputs)?;
    let mut k = options.k;
    for input in inputs.iter().filter(|i| Index::is_there(i)) {
        if k.is_none() {
            k = Some(Index::open(input)?.meta.k);
        }
    }
    let k = k.unwrap_or(DEFAULT.k);
    // Of a k that is none that is told.
    let lengths = Lengths::new(k, options.m.unwrap_or(DEFAULT.m.min(k.saturating_sub(1))))?;
    Ok((lengths, None, vec![new_inputs(options, &inputs, lengths, &[], spool)?]))
}

fn plan_addition(ranks: usize, options: &MergeOptions, spool: &mut Spool) -> Result<Stages> {
    let index = Index::open(&options.out)?;
    let lengths = index.meta.lengths()?;
    for (flag, given, there) in [("-k", options.k, lengths.k), ("-m", options.m, lengths.m)] {
        if given.is_some_and(|given| given != there) {
            let what = format!("--add: {flag} is {there} in this index and cannot change");
            return Err(Error::Index { path: options.out.clone(), what });
        }
    }
    let new = new_inputs(options, &listed(&options.inputs)?, lengths, &index.meta.sources, spool)?;
    if index.meta.partitions == ranks {
        return Ok((lengths, Some(index), vec![new]));
    }
    // Another number of partitions: the old layers are routed anew, one after another.
    let mut stages = Vec::new();
    for layer in 0..index.meta.layers {
        let mut inputs = Inputs::default();
        inputs.reserve_sources(&new.sources);
        inputs.add_layers(index.clone(), 0, layer..layer + 1)?;
        stages.push(inputs);
    }
    stages.push(new);
    Ok((lengths, None, stages))
}

fn new_inputs(
    options: &MergeOptions,
    paths: &[PathBuf],
    lengths: Lengths,
    before: &[String],
    spool: &mut Spool,
) -> Result<Inputs> {
    if options.inputs.is_empty() {
        return Inputs::bundled();
    }
    let mut inputs = Inputs::default();
    inputs.reserve_sources(before);
    for path in paths {
        inputs.add(path, lengths, options.each_record, spool)?;
    }
    if options.min_count > 1 && !inputs.sources.is_empty() && inputs.sequence_units().next().is_none() {
        let what = "--min-count: indexes do not know how often their k-mers occur: give the reads themselves";
        return Err(Error::Usage(what.into()));
    }
    if inputs.sources.len() == before.len() {
        return Err(Error::Usage("no sources: the lists given with @ are empty".into()));
    }
    Ok(inputs)
}

/// The inputs; `@FILE` stands for those that the file lists, one per line. Each list is read once: it may be
/// a pipe.
fn listed(inputs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::with_capacity(inputs.len());
    for input in inputs {
        let Some(list) = input.to_str().and_then(|name| name.strip_prefix('@')) else {
            all.push(input.clone());
            continue;
        };
        let text = std::fs::read_to_string(list).context(|| format!("cannot read the list {list}"))?;
        all.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(PathBuf::from));
    }
    Ok(all)
}
