//! The house: that folders depend on one another in one direction, and that what documents name is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a directory with this ending, but for what is built, vendored, or hidden.
fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() && !["target", "mimalloc"].contains(&&*name) && !name.starts_with('.') {
            found.extend(files(&path, ending));
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found
}

/// What of the master's code is compiled into the program, without comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a file");
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Of each top-level module of the master, those that it names.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let source = root().join("runner/src");
    let mut imports = BTreeMap::<String, BTreeSet<String>>::new();
    for path in files(&source, ".rs") {
        let inside = path.strip_prefix(&source).expect("below it");
        if inside.iter().any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        let module =
            inside.iter().next().expect("a name").to_string_lossy().trim_end_matches(".rs").to_owned();
        let names = imports.entry(module.clone()).or_default();
        for named in code(&path).split("crate::").skip(1) {
            let name: String = named.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            if name != module && (source.join(&name).is_dir() || source.join(format!("{name}.rs")).is_file())
            {
                names.insert(name);
            }
        }
    }
    imports
}

#[test]
fn modules_of_the_master_depend_on_one_another_in_one_direction() {
    let mut imports = imports();
    assert!(imports["job"].contains("residency") && imports["residency"].contains("units"), "{imports:?}");
    assert!(imports.remove("main").is_some() && imports.remove("lib").is_some());
    while !imports.is_empty() {
        let leaves: Vec<String> =
            imports.iter().filter(|(_, names)| names.is_empty()).map(|(name, _)| name.clone()).collect();
        assert!(!leaves.is_empty(), "these depend on one another in a circle, or on such: {imports:?}");
        for leaf in leaves {
            imports.remove(&leaf);
            imports.values_mut().for_each(|names| _ = names.remove(&leaf));
        }
    }
}

#[test]
fn the_core_knows_nothing_of_the_shell() {
    let imports = imports();
    assert_eq!(imports["residency"], BTreeSet::from(["units".to_owned()]));
    for path in files(&root().join("runner/src/residency"), ".rs") {
        let code = code(&path);
        // Its simulator reads a clock to say what the core costs.
        let simulator = path.iter().any(|part| part == "sim");
        for word in ["std::fs", "std::io", "std::net", "std::process", "std::thread", "libc::", "nix::"] {
            assert!(!code.contains(word), "{}: {word}", path.display());
        }
        assert!(simulator || !code.contains("Instant"), "{}: a clock", path.display());
    }
}

/// Targets of links, each with the heading it names, if it does.
fn links(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let inside = targets.filter(|target| !target.contains("://"));
    inside.map(|target| target.split_once('#').map_or((target, None), |(file, at)| (file, Some(at))))
}

/// What links call the headings of a document: as mdBook and GitHub do.
fn headings(text: &str) -> Vec<String> {
    let titles =
        text.lines().filter_map(|line| line.strip_prefix('#')).map(|line| line.trim_start_matches('#'));
    let letter = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    titles.map(|title| title.trim().chars().filter_map(letter).collect()).collect()
}

/// Without what is indented or fenced: commands, and their output.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let is_prose = |line: &&str| {
        fenced ^= line.starts_with("```");
        !fenced && !line.starts_with("    ")
    };
    text.lines().filter(is_prose).map(|line| format!("{line}\n")).collect()
}

/// What stands in backquotes and seems to be a file or a directory of this project.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let plain = quoted.filter(|word| {
        !word.contains([' ', '*', '{', '<', '|', '$', '…', '=']) && !word.starts_with(['/', '.'])
    });
    let is_path = |word: &&str| {
        let tops = ["runner/", "worker/", "sbmalloc/", "ipc/", "examples/", "tests/", "benches/", "docs/"];
        tops.iter().any(|top| word.starts_with(top))
            || [".rs", ".md", ".c", ".go", ".py"].iter().any(|end| word.ends_with(end))
    };
    plain.map(|word| word.split("::").next().unwrap_or_default()).filter(is_path)
}

#[test]
fn what_documents_name_is_there() {
    let (mut missing, mut count) = (vec![], 0);
    let all: Vec<String> = files(root(), "").iter().map(|path| path.display().to_string()).collect();
    for path in files(root(), ".md") {
        let text = fs::read_to_string(&path).expect("a document");
        // What was is not to be there any more.
        if path.ends_with("CHANGELOG.md") {
            continue;
        }
        let prose = prose(&text);
        let beside = path.parent().expect("its directory");
        let is_dead = |(file, at): &(&str, Option<&str>)| {
            let target = if file.is_empty() { path.clone() } else { beside.join(file) };
            let headings = || headings(&self::prose(&fs::read_to_string(&target).unwrap_or_default()));
            !target.exists() || at.is_some_and(|at| !headings().iter().any(|heading| heading == at))
        };
        let dead = links(&prose).filter(is_dead).map(|(file, _)| file);
        let gone = paths(&prose).inspect(|_| count += 1).filter(|named| {
            // Of a part of the project that the text is about.
            let end = format!("/{}", named.trim_end_matches('/'));
            !root().join(named).exists() && !all.iter().any(|path| path.ends_with(&end))
        });
        let document = path.strip_prefix(root()).expect("below it").display();
        missing.extend(dead.chain(gone).map(|named| format!("{document}: {named}")));
    }
    assert!(count > 50, "{count} names were found");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// `docs` is a book (`mdbook build docs`): a page that its list of contents does not name is not in it, and a
/// link to what lies elsewhere is dead there.
#[test]
fn every_page_is_in_the_book() {
    let docs = root().join("docs");
    let contents = fs::read_to_string(docs.join("SUMMARY.md")).expect("the list of contents");
    let mut named: Vec<PathBuf> = links(&contents).map(|(file, _)| docs.join(file)).collect();
    let mut pages: Vec<PathBuf> =
        files(&docs, ".md").into_iter().filter(|page| !page.ends_with("SUMMARY.md")).collect();
    named.sort();
    pages.sort();
    assert_eq!(named, pages);
    for page in pages {
        let text = prose(&fs::read_to_string(&page).expect("a page"));
        let outside: Vec<&str> =
            links(&text).map(|(file, _)| file).filter(|file| file.starts_with("..")).collect();
        assert!(outside.is_empty(), "{}: {outside:?}", page.display());
    }
}

/// What is built without a test harness, because it has no tests (each costs a second or more to build and to
/// link): a test that is written there would never run.
#[test]
fn what_is_not_tested_has_no_tests() {
    let manifests = files(root(), "Cargo.toml");
    let mut found = vec![];
    let mut count = 0;
    for manifest in &manifests {
        let text = fs::read_to_string(manifest).expect("a manifest");
        let folder = manifest.parent().expect("a folder");
        for target in text.split("\n[").filter(|part| part.starts_with("lib]") || part.starts_with("[bin]]"))
        {
            let value = |key: &str| {
                let line = target.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
                line.map(|value| value.trim_matches('"').to_owned())
            };
            let is_library = target.starts_with("lib]");
            let bin = || format!("src/bin/{}.rs", value("name").unwrap_or_default());
            let path = value("path").unwrap_or_else(|| if is_library { "src/lib.rs".into() } else { bin() });
            let main = folder.join(path);
            let sources = match is_library {
                true => files(main.parent().expect("a folder"), ".rs"),
                false => vec![main],
            };
            let has = |what: &dyn Fn(&str) -> bool| {
                let has = |path: &&PathBuf| fs::read_to_string(path).expect("a source").lines().any(what);
                sources.iter().find(has).map(|path| path.display().to_string())
            };
            if value("test").is_some_and(|value| value == "false") {
                count += 1;
                found.extend(has(&|line| line.trim() == "#[test]"));
            }
            if value("doctest").is_some_and(|value| value == "false") {
                count += 1;
                let is_code = |line: &str| {
                    let text = line.trim_start();
                    let fence = text
                        .strip_prefix("//!")
                        .or_else(|| text.strip_prefix("///"))?
                        .trim()
                        .strip_prefix("```")?;
                    Some(fence.to_owned())
                };
                let plain = ["text", "json"];
                let opens = |path: &PathBuf| {
                    let text = fs::read_to_string(path).expect("a source");
                    let fences: Vec<String> = text.lines().filter_map(is_code).collect();
                    fences.iter().step_by(2).any(|fence| !plain.contains(&&**fence))
                };
                found.extend(sources.iter().find(|path| opens(path)).map(|path| path.display().to_string()));
            }
        }
    }
    assert!(count > 20, "{count} targets");
    assert!(found.is_empty(), "{found:#?}");
}

/// What `--stats` writes is in the user guide's table, field by field.
#[test]
fn every_field_of_the_statistics_is_documented() {
    let source = fs::read_to_string(root().join("runner/src/stats.rs")).expect("a file");
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_written = |line: &[&str]| line[0] != "#[serde(skip)]" && !line[0].contains("flatten");
    let field = |line: &str| line.strip_prefix("pub ")?.split_once(": ").map(|(name, _)| name.to_owned());
    let mut fields: Vec<String> =
        lines.windows(2).filter(|two| is_written(two)).filter_map(|two| field(two[1])).collect();
    fields.retain(|name| !name.starts_with("fn ") && !name.starts_with("const "));
    assert!(fields.len() > 50 && fields.iter().any(|name| name == "parts_faults"), "{fields:?}");
    let guide = fs::read_to_string(root().join("docs/user-guide.md")).expect("a file");
    let table = guide.split("\n## `--stats FILE`").nth(1).expect("its section");
    let table = table.split("\n## ").next().unwrap_or_default();
    let words: BTreeSet<&str> = table.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let missing: Vec<_> = fields.iter().filter(|name| !words.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Tables and code in comments cannot be wrapped.
#[test]
fn comments_end_at_the_line_width() {
    let long = |line: &&str| {
        let text = line.trim_start();
        text.starts_with("//") && line.chars().count() > 110 && !text.contains("| ") && !text.contains("http")
    };
    let mut all = vec![];
    for path in files(root(), ".rs") {
        let text = fs::read_to_string(&path).expect("a file");
        all.extend(text.lines().filter(long).map(|line| format!("{}: {line}", path.display())));
    }
    assert!(all.is_empty(), "{all:#?}");
}

/// The preloaded library makes some functions of the C library scheduling points. What moves memory calls
/// none of them: it would begin to move memory once more, and wait for itself.
#[test]
fn the_pager_calls_no_scheduling_point() {
    let calls = fs::read_to_string(root().join("sbmalloc/preload/src/calls.rs")).expect("a file");
    let list = calls.split("\npass_on! {").nth(1).expect("the list");
    let names: Vec<String> =
        list.lines().filter_map(|line| line.trim().split_once('(')).map(|(name, _)| name.into()).collect();
    assert!(names.len() > 10 && names.iter().any(|name| name == "read"), "{names:?}");
    for path in files(&root().join("sbmalloc/src"), ".rs") {
        // That is done by the master, and not to itself.
        if path.iter().any(|part| part == "other") {
            continue;
        }
        let code = code(&path);
        let called = names.iter().find(|name| code.contains(&format!("libc::{name}(")));
        assert_eq!(called, None, "{}", path.display());
        for word in ["thread::sleep", "yield_now", "std::fs::"] {
            let is_used = code.contains(word);
            assert!(!is_used, "{}: {word}", path.display());
        }
    }
}

/// `then_some(Guard(…))` makes the guard in any case and drops it where the answer is none: that let go of
/// locks of others. (Found by what is dropped; `then` with a closure makes none.)
#[test]
fn what_does_something_when_dropped_is_not_made_in_vain() {
    let mut wrong = vec![];
    let mut looked = 0;
    for path in files(root(), ".rs") {
        let folder = path.parent().expect("a folder");
        let source = folder.ancestors().find(|folder| folder.ends_with("src")).unwrap_or(folder);
        let text = code(&path);
        let eager: Vec<&str> = text.split("then_some(").skip(1).map(|rest| rest.trim_start()).collect();
        if eager.is_empty() {
            continue;
        }
        let dropped: BTreeSet<String> =
            files(source, ".rs").iter().flat_map(|path| dropped(&code(path))).collect();
        looked += dropped.len();
        let own = self::dropped(&text);
        for value in eager {
            let name: String = value.chars().take_while(|c| c.is_alphanumeric()).collect();
            if dropped.contains(&name) || (name == "Self" && !own.is_empty()) {
                wrong.push(format!("{}: then_some({name}…", path.display()));
            }
        }
    }
    assert!(looked > 10, "few types have a `Drop`: {looked}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The types that have a `Drop`.
fn dropped(code: &str) -> BTreeSet<String> {
    let named = code.split(" Drop for ").skip(1);
    let names = named.map(|rest| rest.chars().take_while(|c| c.is_alphanumeric()).collect::<String>());
    names.filter(|name| !name.is_empty()).collect()
}

/// Under `set -e` a command that fails in a trap becomes the exit code of a script that had done all: `kill`
/// without a process ended CI with 2.
#[test]
fn what_scripts_do_at_their_end_leaves_the_exit_code() {
    let mut looked = 0;
    for folder in [".ci", "benches", "packaging"] {
        for path in files(&root().join(folder), "") {
            let Ok(text) = fs::read_to_string(&path) else { continue };
            for line in
                text.lines().filter(|line| line.trim().starts_with("trap '") && line.ends_with(" EXIT"))
            {
                // Names that it uses are empty here, and so is what it removes.
                let script = format!("set -e; keep= busy=(); {line}\ntrue");
                let ended = Command::new("bash").args(["-c", &script]).output().expect("bash");
                assert!(ended.status.success(), "{}: {line}: {ended:?}", path.display());
                looked += 1;
            }
        }
    }
    assert!(looked > 10, "few scripts do something at their end: {looked}");
}
