//! Slurm on this machine alone: a controller, and a daemon for each of its nodes.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use nix::unistd::geteuid;

use super::{Directory, LIMIT, first_of, limited, poll, proc, skipped};

/// Until it is dropped.
pub struct Slurm {
    nodes: u32,
    _daemons: Vec<Daemon>,
    directory: Directory,
}

impl Drop for Slurm {
    /// What a step's own process has to tell the controller once the step is over it tries to tell for
    /// minutes, and its daemon waits for it: so the controller stays until nodes are idle, and longer than
    /// daemons.
    fn drop(&mut self) {
        poll(LIMIT, || are_idle(self.nodes, &self.directory).then_some(()));
    }
}

/// A daemon, ended with the test.
pub struct Daemon(pub Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        proc::kill(i32::try_from(self.0.id()).expect("a pid"), libc::SIGTERM);
        if poll(LIMIT, || self.0.try_wait().expect("wait for a daemon")).is_none() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Below those that the kernel gives to whoever connects: one of these would be gone before a daemon has it.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() * 64;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports = (0..20_000).map(|_| first.wrapping_add(NEXT.fetch_add(1, Relaxed)) % 20_000 + 10_000);
    ports.map(|port| u16::try_from(port).expect("a port")).find(is_free).expect("a free port")
}

impl Slurm {
    /// Of so many nodes of two processors; `None`, said, where that cannot be.
    pub fn start(nodes: u32) -> Option<Self> {
        // (`sbatch -V` wants a cluster.)
        let there = "command -v slurmctld && command -v slurmd && command -v sbatch";
        let found = Command::new("sh").args(["-c", there]).stdout(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            skipped("slurm", "no slurmctld, slurmd and sbatch");
            return None;
        }
        if !geteuid().is_root() {
            skipped("root", "slurmd is to be started");
            return None;
        }
        if std::thread::available_parallelism().is_ok_and(|count| count.get() < 2) {
            skipped("processors", "a node of two processors");
            return None;
        }
        // Another may take a port between our look and a daemon that binds it.
        Some(first_of(0..3, |_| Self::with_ports_of_its_own(nodes)))
    }

    /// Unless a daemon ends.
    fn with_ports_of_its_own(nodes: u32) -> Result<Self, String> {
        let directory = Directory::new("slurmd");
        let here = directory.path().display();
        let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("the machine's name");
        let name = name.trim().split('.').next().unwrap_or("localhost");
        let mut conf = format!(
            "ClusterName=tests\nSlurmctldHost={name}(127.0.0.1)\nAuthType=auth/none\nCredType=cred/none\n\
             SlurmUser=root\nSlurmdUser=root\nSlurmctldPort={}\n\
             StateSaveLocation={here}/state\nSlurmdSpoolDir={here}/spool.%n\nSlurmctldPidFile={here}/c.pid\n\
             SlurmdPidFile={here}/%n.pid\nSlurmctldLogFile={here}/c.log\nSlurmdLogFile={here}/%n.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n\
             SelectTypeParameters=CR_CPU_Memory\nJobAcctGatherType=jobacct_gather/none\nMpiDefault=none\n\
             SwitchType=switch/none\nReturnToService=2\nMessageTimeout=100\nBatchStartTimeout=300\n\
             PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
            free_port(),
        );
        for node in 0..nodes {
            conf += &format!(
                "NodeName=node{node} NodeHostname={name} NodeAddr=127.0.0.1 Port={} CPUs=2 RealMemory=400 \
                 State=UNKNOWN\n",
                free_port()
            );
            fs::create_dir(directory.path().join(format!("spool.node{node}"))).expect("a folder");
        }
        fs::create_dir(directory.path().join("state")).expect("a folder");
        fs::write(directory.path().join("slurm.conf"), conf).expect("a file");
        let daemon = |name: &str, node: Option<u32>| {
            let mut command = Command::new(name);
            command.arg("-D").arg("-f").arg(directory.path().join("slurm.conf"));
            command.args(node.iter().flat_map(|node| ["-N".to_owned(), format!("node{node}")]));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            Daemon(command.spawn().expect("start a daemon"))
        };
        let mut daemons: Vec<_> = (0..nodes).map(|node| daemon("slurmd", Some(node))).collect();
        daemons.push(daemon("slurmctld", None));
        let come_up = poll(LIMIT, || {
            let ended = daemons.iter_mut().any(|daemon| daemon.0.try_wait().expect("a daemon").is_some());
            if ended { Some(false) } else { are_idle(nodes, &directory).then_some(true) }
        });
        let logs = logs(&directory);
        match come_up {
            Some(true) => Ok(Self { nodes, _daemons: daemons, directory }),
            Some(false) => Err(logs),
            None => panic!("{logs}"),
        }
    }

    /// By which its commands find it: `SLURM_CONF`.
    pub fn conf(&self) -> PathBuf {
        conf(&self.directory)
    }

    /// What its daemons have written down.
    pub fn logs(&self) -> String {
        logs(&self.directory)
    }
}

fn conf(directory: &Directory) -> PathBuf {
    directory.path().join("slurm.conf")
}

fn logs(directory: &Directory) -> String {
    let log = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    ["c.log", "node0.log", "node1.log"].map(log).concat()
}

/// Whether all nodes are there, and have nothing to do.
fn are_idle(nodes: u32, directory: &Directory) -> bool {
    let mut command = Command::new("sinfo");
    command.env("SLURM_CONF", conf(directory)).args(["-h", "-N", "-o", "%T"]);
    let said = limited(&mut command, LIMIT).stdout;
    let is_idle = |line: &&str| *line == "idle";
    String::from_utf8_lossy(&said).lines().filter(is_idle).count() == nodes as usize
}
