//! The recipes of `docs/recipes`, each run by the tool it is for: a job of six parts whose last one fails, or
//! is asked to end, when the others are done, and the same again. What was done is not run a second time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::unistd::geteuid;

use crate::common::slurm::{Daemon, Slurm};
use crate::common::{Directory, LIMIT, limited, poll, program, skipped};

/// The file of a recipe.
fn recipe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/recipes").join(name)
}

/// A directory with parts, and a program for them that sorts and writes down which part it has done.
struct Work(Directory);

impl Work {
    /// What the program does for the last part when the others are done; the second time it sorts.
    const FAILS: &str = "exit 3";
    const SLEEPS: &str = "echo >asked; exec sleep 1000";

    fn new(name: &str, last: &str) -> Self {
        let dir = Directory::new(&format!("recipes-{name}"));
        fs::create_dir(dir.path().join("parts")).unwrap();
        for part in 1..=6_u64 {
            let lines: String = (0..1000).map(|line| format!("{}\n", line * 7919 * part % 100_003)).collect();
            fs::write(dir.path().join(format!("parts/{part}.txt")), lines).unwrap();
        }
        let here = dir.path().display();
        // A part is done, and in the journal, once its file has its name.
        let tool = format!(
            "#!/bin/sh\n\
             echo \"${{1##*/}}\" >>{here}/ran\n\
             case $1 in *6.txt) if [ ! -e {here}/second ]; then\n\
             n=0\n\
             until [ -e sorted/1.txt ] && [ -e sorted/2.txt ] && [ -e sorted/3.txt ] && [ -e sorted/4.txt ] && [ -e sorted/5.txt ]; do\n\
             n=$((n + 1)); [ $n -lt 6000 ] || exit 4; sleep 0.1; done\n\
             {last}; fi;; esac\n\
             exec sort \"$1\"\n"
        );
        dir.script("tool", &tool);
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn tool(&self) -> String {
        self.path().join("tool").display().to_string()
    }

    /// A command that finds `bdrun` by its name, which is all that recipes need.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let ours = self::program("bdrun");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", ours.parent().unwrap().display());
        command.env("PATH", path).env("TOOL", self.tool()).env("TMPDIR", self.path());
        command.env("LC_ALL", "C").current_dir(self.path()).stdin(Stdio::null());
        command
    }

    /// From now on the last part is sorted too.
    fn second(&self) {
        fs::write(self.path().join("second"), "").unwrap();
    }

    /// Five parts ran once, the last one twice, and all lines are there, sorted.
    fn check(&self, said: &str) {
        let ran = fs::read_to_string(self.path().join("ran")).unwrap();
        let mut ran: Vec<&str> = ran.lines().collect();
        ran.sort_unstable();
        assert_eq!(ran, ["1.txt", "2.txt", "3.txt", "4.txt", "5.txt", "6.txt", "6.txt"], "{said}");
        let parts = (1..=6).map(|part| self.path().join(format!("parts/{part}.txt")));
        let text: String = parts.map(|part| fs::read_to_string(part).unwrap()).collect();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let total = fs::read_to_string(self.path().join("total.txt")).expect(said);
        assert_eq!(total.lines().collect::<Vec<_>>(), lines, "{said}");
    }
}

fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The Python that has the tools that come from PyPI.
fn python() -> PathBuf {
    std::env::var_os("BDRUN_RECIPES_PYTHON").map_or_else(|| "python3".into(), PathBuf::from)
}

/// Whether a command ends well.
fn runs(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    let command = command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn snakemake() {
    if !runs(python(), &["-c", "import snakemake"]) {
        return skipped("snakemake", "no snakemake in this Python (BDRUN_RECIPES_PYTHON)");
    }
    let work = Work::new("snakemake", Work::FAILS);
    let run = || {
        let mut command = work.command(python());
        command.args(["-m", "snakemake", "--cores", "2", "--snakefile"]).arg(recipe("Snakefile"));
        command.arg("--config").arg(format!("tool={}", work.tool())).env("HOME", work.path());
        limited(&mut command, LIMIT)
    };
    let first = run();
    assert!(!first.status.success() && !work.path().join("total.txt").exists(), "{}", text(&first));
    work.second();
    let second = run();
    assert!(second.status.success(), "{}", text(&second));
    work.check(&text(&second));
}

#[test]
fn hyperqueue() {
    if !runs(python(), &["-c", "import hyperqueue"]) {
        return skipped("hyperqueue", "no hyperqueue in this Python (BDRUN_RECIPES_PYTHON)");
    }
    let work = Work::new("hyperqueue", Work::FAILS);
    let run = || {
        let mut command = work.command(python());
        command.arg(recipe("hq.py"));
        limited(&mut command, LIMIT)
    };
    let first = run();
    assert_eq!(first.status.code(), Some(1), "{}", text(&first));
    work.second();
    let second = run();
    assert!(second.status.success(), "{}", text(&second));
    work.check(&text(&second));
}

/// What Nextflow makes of a script: placeholders are replaced, and it runs in a directory of its own.
fn script(file: &str, process: &str, values: &[(&str, &str)]) -> String {
    let (_, from) = file.split_once(&format!("process {process} {{")).expect("the process");
    let mut script = from.split("\"\"\"").nth(1).expect("its script").to_owned();
    for (name, value) in values {
        script = script.replace(&format!("${{{name}}}"), value);
    }
    assert!(!script.replace("\\$", "").contains('$'), "not replaced: {script}");
    script.replace("\\$", "$").replace("\\\n", " ")
}

/// Nextflow itself comes from no package registry: what its processes run is run here as it does.
#[test]
fn scripts_of_nextflow() {
    let work = Work::new("nextflow", Work::FAILS);
    let (parts, state) = (work.path().join("parts"), work.path().join("state"));
    let (parts, state, tool) = (parts.display().to_string(), state.display().to_string(), work.tool());
    let file = fs::read_to_string(recipe("main.nf")).unwrap();
    let values = [
        ("params.state", &*state),
        ("params.tool", &tool),
        ("parts", &parts),
        ("task.cpus", "2"),
        ("task.memory.toMega()", "200"),
    ];
    let run = |script: &str, directory: &str| {
        let directory = work.path().join(directory);
        fs::create_dir_all(&directory).unwrap();
        let mut command = work.command("bash");
        command.args(["-uec", script]).current_dir(&directory);
        limited(&mut command, LIMIT)
    };
    let each = script(&file, "each_part", &values);
    let first = run(&each, "first");
    assert_eq!(first.status.code(), Some(3), "{}", text(&first));
    work.second();
    let second = run(&each, "second-try");
    assert!(second.status.success(), "{}", text(&second));
    let total = run(&script(&file, "total", &values), "second-try");
    assert!(total.status.success(), "{}", text(&total));
    fs::rename(work.path().join("second-try/total.txt"), work.path().join("total.txt")).unwrap();
    work.check(&text(&second));
}

/// A command of Slurm: what it says.
fn ask(slurm: &Slurm, work: &Work, command: &str, args: &[&str]) -> String {
    let mut command = work.command(command);
    command.env("SLURM_CONF", slurm.conf()).args(args);
    text(&limited(&mut command, LIMIT))
}

/// Its time is over in the middle: it queues itself again, and goes on.
#[test]
fn slurm() {
    let work = Work::new("slurm", Work::SLEEPS);
    let Some(slurm) = Slurm::start(1) else { return };
    let file = recipe("slurm.sh").display().to_string();
    let said = ask(&slurm, &work, "sbatch", &["--parsable", &file]);
    let job = said.lines().next().unwrap_or_default().to_owned();
    let output = || fs::read_to_string(work.path().join(format!("slurm-{job}.out"))).unwrap_or_default();
    let told = |what: &str| format!("{what}: {said} {} {}", output(), slurm.logs());

    let asked = poll(LIMIT, || work.path().join("asked").exists().then_some(()));
    assert!(asked.is_some(), "{}", told("the last part was not begun"));
    work.second();
    // As the controller does a minute before the time is over.
    ask(&slurm, &work, "scancel", &["--signal=TERM", "--batch", &job]);
    let state = || ask(&slurm, &work, "squeue", &["-h", "-j", &job, "-o", "%T"]);
    let queued = poll(LIMIT, || state().contains("PENDING").then_some(()));
    assert!(queued.is_some(), "{}", told("it is not in the queue again"));
    // It would begin after two minutes. Within the second in which it ended the node would refuse it
    // ("already killed, do not launch batch job").
    ask(&slurm, &work, "scontrol", &["update", &format!("JobId={job}"), "StartTime=now+2"]);
    let is_over = || {
        let state = ask(&slurm, &work, "scontrol", &["show", "job", &job]);
        ["COMPLETED", "FAILED", "CANCELLED"]
            .iter()
            .any(|end| state.contains(&format!("JobState={end}")))
            .then_some(state)
    };
    let state = poll(LIMIT, is_over).unwrap_or_else(|| panic!("{}", told("no end")));
    assert!(state.contains("JobState=COMPLETED"), "{}", told(&state));
    work.check(&told("done"));
}

/// A program with the libraries it needs, below a folder.
fn put(root: &Path, program: &Path, to: &str) {
    let listed = Command::new("ldd").arg(program).output().expect("run ldd");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let words = listed.split_whitespace().filter(|word| word.starts_with('/'));
    let own = [(program.to_owned(), to.to_owned())];
    for (from, to) in words.map(|word| (PathBuf::from(word), word.to_owned())).chain(own) {
        let to = root.join(to.trim_start_matches('/'));
        if !to.exists() {
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(from, &to).unwrap();
        }
    }
}

/// In a container as Docker makes them, by an ordinary user, with less memory than six sorts have.
#[test]
fn container_without_privileges() {
    if !geteuid().is_root() {
        return skipped("root", "Docker's daemon is to be started");
    }
    if !["docker", "dockerd"].iter().all(|program| runs(program, &["--version"])) {
        return skipped("docker", "no docker and dockerd");
    }
    let work = Work::new("container", Work::FAILS);
    let own = Directory::new("recipes-docker");
    let at = |name: &str| own.path().join(name).display().to_string();
    let socket = format!("unix://{}", at("socket"));
    let log = fs::File::create(at("log")).unwrap();
    let mut command = work.command("dockerd");
    command.args([
        "--data-root",
        &at("data"),
        "--exec-root",
        &at("exec"),
        "--pidfile",
        &at("pid"),
        "-H",
        &socket,
    ]);
    command.args(["--bridge=none", "--iptables=false", "--ip6tables=false", "--storage-driver=vfs"]);
    let mut daemon = Daemon(command.stdout(Stdio::null()).stderr(log).spawn().expect("start dockerd"));
    let docker = |args: &[&str]| {
        let mut command = work.command("docker");
        command.args(args).env("DOCKER_HOST", &socket);
        limited(&mut command, LIMIT)
    };
    let begun = poll(LIMIT, || {
        let ended = daemon.0.try_wait().expect("wait for dockerd").is_some();
        let answers = docker(&["version"]).status.success();
        (ended || answers).then_some(answers)
    });
    if begun != Some(true) {
        let log = fs::read_to_string(at("log")).unwrap_or_default();
        return skipped("docker", format!("dockerd does not start: {}", log.lines().last().unwrap_or("")));
    }

    let root = own.path().join("root");
    for folder in ["tmp", "var/tmp", "job"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    put(&root, Path::new("/bin/sh"), "/bin/sh");
    put(&root, Path::new("/usr/bin/sort"), "/usr/bin/sort");
    put(&root, Path::new("/bin/sleep"), "/usr/bin/sleep");
    put(&root, &program("bdrun"), "/usr/bin/bdrun");
    let library = crate::common::libraries::libraries().join("libsbmalloc.so");
    put(&root, &library, "/usr/lib/libsbmalloc.so");
    let image = at("image.tar");
    assert!(runs("tar", &["-C", &root.display().to_string(), "-cf", &image, "."]));
    let imported = docker(&["import", &image, "recipes"]);
    assert!(imported.status.success(), "{}", text(&imported));

    // Inside, the work lies elsewhere, and the program is by its place there.
    let tool = fs::read_to_string(work.tool()).unwrap().replace(&work.path().display().to_string(), "/job");
    work.0.script("tool", &tool);
    work.0.open_to_all();
    fs::set_permissions(at("socket"), fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(own.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let run = || {
        use std::os::unix::process::CommandExt;
        let mut command = work.command("sh");
        command.arg(recipe("container.sh")).arg("recipes").uid(65534).gid(65534);
        command
            .env("DOCKER_HOST", &socket)
            .env("HOME", "/nonexistent")
            .env("MEMORY", "48m")
            .env("TOOL", "/job/tool");
        limited(&mut command, LIMIT)
    };
    let first = run();
    assert_eq!(first.status.code(), Some(3), "{}", text(&first));
    work.second();
    let second = run();
    assert!(second.status.success(), "{}", text(&second));
    work.check(&text(&second));
}
