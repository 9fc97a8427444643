//! What is measured is what there is.

use super::*;
use std::os::unix::process::CommandExt;

/// What the bare test program holds: to be taken off.
fn bare(rig: &Rig) -> Sample {
    let group = rig.start(900, "nothing");
    rig.sampler.watch(900, group);
    let sample = rig.sample_until(900, |sample| sample.processes == 1 && sample.threads > 0);
    rig.sampler.forget(900);
    sample
}

fn kinds_are_told_apart(rig: &Rig) {
    let bare = bare(rig);
    for (rank, role) in ["private", "shared", "file"].into_iter().enumerate() {
        rig.sampler.watch(rank as u32, rig.start(rank as u32, role));
    }
    let whole = |sample: &Sample| sample.threads > 0;
    let [private, shared, file] = [0, 1, 2].map(|rank| rig.sample_until(rank, whole));
    assert!(near(private.private - bare.private, 64 * MIB), "{private:?}, bare {bare:?}");
    assert!(near(private.shared, 0), "{private:?}");
    assert!(near(shared.shared, 48 * MIB), "{shared:?}");
    assert!(near(shared.private, bare.private), "{shared:?}, bare {bare:?}");
    assert!(near(file.file - bare.file, 32 * MIB), "{file:?}, bare {bare:?}");
    assert!(near(file.private, bare.private), "{file:?}");
    // 16,384 entries of 8 bytes, less what was there for other pages.
    let tables = private.page_tables - bare.page_tables;
    assert!(near(tables, 64 * MIB / 512), "{tables}");
    assert_eq!(private.resident(), private.private + private.shared + private.page_tables);
    println!("bare {bare:?}\nprivate {private:?}\nshared {shared:?}\nfile {file:?}");
}

fn shared_after_a_fork_is_counted_once(rig: &Rig) {
    let bare = bare(rig);
    rig.sampler.watch(0, rig.start(0, "copies"));
    let expected = 64 * MIB + 16 * MIB;
    // Each child has a few pages of its own.
    let sample = rig.sample_until(0, |sample| {
        sample.processes == 4
            && near(sample.private - bare.private, expected)
            && near(sample.shared, 16 * MIB)
    });
    assert_eq!(sample.processes, 4);
    assert!(near(sample.private - bare.private, expected), "{sample:?}, bare {bare:?}");
    assert!(near(sample.shared, 16 * MIB), "{sample:?}");
    println!("copies {sample:?}");
}

#[test]
fn kinds_in_a_cgroup() {
    let rig = rig(true);
    if rig.in_cgroups() {
        kinds_are_told_apart(&rig);
    }
}

#[test]
fn kinds_in_a_tree() {
    kinds_are_told_apart(&rig(false));
}

#[test]
fn copies_in_a_cgroup() {
    let rig = rig(true);
    if rig.in_cgroups() {
        shared_after_a_fork_is_counted_once(&rig);
    }
}

#[test]
fn copies_in_a_tree() {
    shared_after_a_fork_is_counted_once(&rig(false));
}

#[test]
fn a_daemon_is_found_in_a_cgroup() {
    let rig = rig(true);
    if !rig.in_cgroups() {
        return;
    }
    let group = rig.start(0, "daemon");
    assert_eq!(group.tracking(), Tracking::Cgroup);
    assert_eq!(group.processes().unwrap().len(), 2);
    rig.sampler.watch(0, group.clone());
    let sample = rig.sample_until(0, |sample| sample.private > 48 * MIB);
    assert_eq!(sample.processes, 2);
    assert!(sample.private > 48 * MIB, "{sample:?}");
    // It does not outlive its rank.
    rig.supervisor.signal(0, libc::SIGTERM);
    rig.usage(0);
    let deadline = Instant::now() + LIMIT;
    while !group.processes().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "{:?} is left", group.processes());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Where there is no cgroup, whoever was seen once is not lost when its parent ends.
#[test]
fn children_are_found_in_a_tree() {
    let rig = rig(false);
    let group = rig.start(0, "copies");
    assert_eq!(group.tracking(), Tracking::Tree);
    let mut there = group.processes().unwrap();
    there.retain(|&pid| pid != group.leader());
    assert_eq!(there.len(), 3);
}

#[test]
fn time_of_ended_children_is_counted_and_peaks_stay() {
    for rank_groups in [true, false] {
        let rig = rig(rank_groups);
        rig.sampler.watch(0, rig.start(0, "worker"));
        let enough = Duration::from_millis(280);
        let sample = rig.sample_until(0, |sample| sample.cpu >= enough);
        assert!(sample.cpu >= enough && sample.cpu < Duration::from_secs(10), "{sample:?}");

        rig.sampler.watch(1, rig.start(1, "private and ends"));
        rig.sample_until(1, |sample| sample.private > 64 * MIB && sample.file > 0);
        std::fs::write(rig.directory.join("1.go"), "").unwrap();
        let usage = rig.usage(1);
        let last = rig.sampler.forget(1).expect("was watched");
        assert!(last.peak >= 64 * MIB && last.peak_private >= 64 * MIB, "{last:?}");
        // What the kernel says at the end is used only where it speaks of the rank and not of us before
        // `exec`.
        let final_peak = last.final_peak(&usage, own_max_rss());
        assert!(near(final_peak, last.peak), "{final_peak}, {last:?}, {usage:?}");
        let above = Usage { max_rss: 500 * MIB + last.peak_file, ..Usage::default() };
        assert_eq!(last.final_peak(&above, own_max_rss().max(499 * MIB)), 500 * MIB);
        assert_eq!(rig.sampler.forget(1), None);
    }
}

#[test]
fn one_message_at_a_time_and_none_of_ranks_that_are_out() {
    let rig = rig(true);
    rig.sampler.watch(0, rig.start(0, "nothing"));
    rig.sampler.watch(1, rig.start(1, "nothing"));
    let first = loop {
        if let Event::Measured(measured) = rig.next() {
            break measured;
        }
    };
    assert!(
        rig.events.recv_timeout(Duration::from_millis(200)).is_err(),
        "a second one before the first is done"
    );
    rig.sampler.set_out(0, true);
    drop(first);
    // One may have been taken in between.
    let found = (0..10).map(|_| match rig.next() {
        Event::Measured(measured) => measured.samples.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(),
        Event::Happening(other) => panic!("{other:?}"),
    });
    let found: Vec<Vec<u32>> = found.collect();
    assert_eq!(found.last(), Some(&vec![1]), "{found:?}");
}

/// Not a test by itself: a master that is nobody in particular.
#[test]
fn helper_unprivileged() {
    if std::env::var_os("MEASURE_UNPRIVILEGED").is_none() {
        return;
    }
    let rig = rig(true);
    let permits = rig.supervisor.permits();
    println!("{permits:?}");
    kinds_are_told_apart(&rig);
    drop(rig);
    shared_after_a_fork_is_counted_once(&super::rig(true));
    println!("nobody is told the truth too");
}

#[test]
fn an_unprivileged_master_is_told_the_truth() {
    let directory = std::env::temp_dir().join(format!("bdrun-measure-nobody-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    // With a program that nobody may execute although its directories are ours. Copied by another process:
    // one that we had open for writing could be so in a child of another test, and would not be executed
    // ("text file busy").
    let program = directory.join("tests");
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    let mut command = Command::new(&program);
    command.args(again("figures::helper_unprivileged").get_args());
    command.env("MEASURE_UNPRIVILEGED", "1").env("TMPDIR", &directory);
    if is_root() {
        std::os::unix::fs::chown(&directory, Some(65_534), Some(65_534)).unwrap();
        command.uid(65_534).gid(65_534);
    }
    let output = command.output();
    std::fs::remove_dir_all(&directory).unwrap();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("nobody is told the truth too"), "{text}");
    println!("{text}");
}

/// Where there is no cgroup and it is too early to read the table of all processes again, a new rank is
/// measured nevertheless.
#[test]
fn the_first_process_of_a_rank_is_measured_at_once() {
    use crate::measure::meter::{Crowded, Look, Meter};
    let own = std::process::id() as i32;
    let mut meter = Meter::new(Group::tree(own), Spare::new(1));
    let early = Look { now: Instant::now(), births: Some(1), table: None, crowded: Crowded::No };
    meter.look(&early, false, false);
    assert_eq!(meter.sample().processes, 1);
    assert!(meter.sample().private > 0);
    assert!(meter.wants_table(Instant::now(), Some(1)), "the others are not known yet");
}

/// Children end while it is found out what a family shares, before anybody has noticed that: they are in
/// nobody's share, and their end does not change what the others share once more.
#[test]
fn who_ended_before_the_answer_came_is_not_taken_off_twice() {
    use crate::measure::meter::{Crowded, Look, Meter};
    use crate::measure::shares::Found;
    let rig = rig(false);
    let group = rig.start(0, "family");
    let leader = group.leader();
    let pids = group.processes().unwrap();
    let children: Vec<i32> = pids.into_iter().filter(|&pid| pid != leader).collect();
    let mut meter = Meter::new(group, Spare::new(1));
    let look = |meter: &mut Meter| {
        let table = tree::Table::read().unwrap();
        meter.look(
            &Look { now: Instant::now(), births: None, table: Some(&table), crowded: Crowded::No },
            false,
            false,
        );
    };
    let of = |pid| {
        let proc::Shares { anonymous, anonymous_share: share, alone, shared_share } =
            proc::shares(pid).expect("it is there");
        Found { pid, anonymous, share, alone, shared_share }
    };
    look(&mut meter);
    let (generation, asked) = meter.to_divide();
    assert_eq!(asked.len(), 4);
    meter.divide(Instant::now(), generation, &asked.into_iter().map(of).collect::<Vec<_>>());
    look(&mut meter);
    let once = meter.sample().private;
    assert!((64 * MIB..96 * MIB).contains(&once), "{once}");

    let (generation, _) = meter.to_divide();
    let early = of(leader);
    for &child in &children[..2] {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child), nix::sys::signal::Signal::SIGKILL).unwrap();
        while proc::shares(child).is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let found = [early, of(children[2])];
    // As often as that is of no use, and once more.
    for _ in 0..4 {
        meter.divide(Instant::now(), generation, &found);
        look(&mut meter);
        assert!(near(meter.sample().private, once), "{} of {once}", meter.sample().private);
    }
}

/// Four that compute share one processor: each would use it alone. One that sleeps does not wait for it.
#[test]
fn who_waits_for_a_processor_is_not_idle() {
    use crate::measure::meter::{Crowded, Look, Meter};
    let rig = rig(false);
    let roles = ["computes", "computes", "computes", "computes", "nothing"];
    let mut meters: Vec<Meter> =
        (0..).zip(roles).map(|(rank, role)| Meter::new(rig.start(rank, role), Spare::new(1))).collect();
    let mut look = |crowded| {
        let table = tree::Table::read().unwrap();
        let look = Look { now: Instant::now(), births: None, table: Some(&table), crowded };
        meters.iter_mut().for_each(|meter| meter.look(&look, false, false));
        meters.iter().map(Meter::busy).collect::<Vec<_>>()
    };
    // This thread may be kept from a processor between the clock and what it looks at: then shares of the
    // time between two looks are wrong, in that round.
    let mut round = || {
        look(Crowded::Read);
        std::thread::sleep(Duration::from_secs(2));
        let wanted = look(Crowded::Read);
        std::thread::sleep(Duration::from_secs(2));
        let used: f64 = look(Crowded::No).iter().sum();
        println!("wanted {wanted:?}, used {used}");
        // All four would be 4.
        wanted[..4].iter().all(|&wanted| wanted > 0.7) && wanted[4] < 0.2 && used < 3.0
    };
    assert!((0..5).any(|_| round()));
}

/// A master that is busy hears of one look of several: what it is told has grown in all of that time.
#[test]
fn time_is_told_from_one_message_to_the_next() {
    let rig = rig(false);
    rig.sampler.watch(0, rig.start(0, "nothing"));
    let measured = || loop {
        if let Event::Measured(measured) = rig.next() {
            break measured;
        }
    };
    let grows = |_| {
        let first = measured();
        let taken = first.taken;
        // As long as it lives nothing is told, and there are looks all the same.
        std::thread::sleep(Duration::from_millis(100));
        drop(first);
        let next = measured();
        assert_eq!(next.elapsed, next.taken - taken);
        assert!(next.gap <= next.elapsed, "{next:?}");
        // The next may be a look that began before the first was dropped, on a busy machine long before.
        next.elapsed >= Duration::from_millis(50)
    };
    assert!((0..20).any(grows));
}
