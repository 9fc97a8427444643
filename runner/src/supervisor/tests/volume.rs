//! Many ranks, much output.

use super::*;

#[test]
fn lines_of_fifty_ranks_are_never_mixed() {
    for tag_output in [false, true] {
        let rig = rig(Config { tag_output, ..grouped() });
        for rank in 0..50 {
            // Each line in three writes; stdout and stderr.
            rig.shell(
                rank,
                "x=$(printf '%01500d' 0); i=0
                while [ $i -lt 40 ]; do
                    printf '%s' \"a$RANK.$i:$x\"; printf '%s' \"$x\"; printf '%s\\n' \"$x.z\"
                    printf '%s' \"b$RANK.$i:$x\" >&2; printf '%s\\n' \"$x.z\" >&2
                    i=$((i+1))
                done; printf \"last$RANK\"",
            );
        }
        rig.ends(50);
        let (out, err, _) = rig.finish();
        for (text, letter, zeros) in [(&out, 'a', 4500), (&err, 'b', 3000)] {
            let mut next = [0; 50];
            let mut last = 0;
            for line in text.lines() {
                let line = match line.strip_prefix('[') {
                    Some(tagged) => tagged.split_once("] ").unwrap().1,
                    None => line,
                };
                if let Some(rank) = line.strip_prefix("last") {
                    assert_eq!(next[rank.parse::<usize>().unwrap()], 40);
                    last += 1;
                    continue;
                }
                let (head, tail) = line.split_once(':').unwrap();
                let (rank, number) = head.strip_prefix(letter).unwrap().split_once('.').unwrap();
                let rank: usize = rank.parse().unwrap();
                assert_eq!(next[rank], number.parse::<i32>().unwrap(), "lines of rank {rank} in order");
                next[rank] += 1;
                assert!(
                    tail.strip_suffix(".z").is_some_and(|t| t.len() == zeros && t.bytes().all(|b| b == b'0'))
                );
            }
            assert_eq!(next, [40; 50]);
            assert_eq!(last, if letter == 'a' { 50 } else { 0 });
        }
    }
}

#[test]
fn a_thousand_ranks() {
    for config in [Config::default(), grouped()] {
        let rig = rig(config);
        let start = Instant::now();
        for rank in 0..1000 {
            let mut spec = shell(rank, "");
            spec.program = "/bin/true".into();
            rig.supervisor.spawn(spec);
        }
        assert!(rig.ends(1000).iter().all(|end| end.1.success()));
        println!("{:?}: 1,000 × /bin/true in {:?}", rig.supervisor.isolation(), start.elapsed());
        let start = Instant::now();
        for rank in 0..1000 {
            rig.shell(rank, "echo $RANK; exec sleep 1000");
        }
        let mut spawned = vec![];
        while spawned.len() < 1000 {
            if let Happening::Spawned { pid, .. } = rig.next() {
                spawned.push(pid);
            }
        }
        println!("1,000 alive at once after {:?}", start.elapsed());
        let since = Instant::now();
        // Each has written its line when it has become another program.
        let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("it lives");
        while !spawned.iter().all(|pid| name(pid) == "sleep\n") {
            assert!(since.elapsed() < LIMIT, "some are still shells");
            std::thread::sleep(Duration::from_millis(20));
        }
        let start = Instant::now();
        rig.supervisor.signal_all(libc::SIGTERM);
        assert!(rig.ends(1000).iter().all(|end| end.1.shell_code() == 128 + libc::SIGTERM));
        println!("1,000 ended after {:?}", start.elapsed());
        let (out, ..) = rig.finish();
        let mut ranks: Vec<u32> = out.lines().map(|line| line.parse().unwrap()).collect();
        ranks.sort_unstable();
        assert!(ranks.into_iter().eq(0..1000));
    }
}

#[test]
fn one_rank_writes_fast() {
    let lines = "yes 'a line as programs write them, of some seventy characters or so' | head -c 300000000";
    let no_line = "head -c 300000000 /dev/zero";
    for (tag_output, script) in [(false, lines), (true, lines), (false, no_line)] {
        let (sender, events) = channel::<Happening>();
        let null = || std::fs::File::options().write(true).open("/dev/null").unwrap().into();
        let config = Config { tag_output, outputs: Some((null(), null())), ..Config::default() };
        let mut supervisor = Supervisor::start(config, sender).unwrap();
        let start = Instant::now();
        supervisor.spawn(shell(0, script));
        while !matches!(events.recv().unwrap(), Happening::Exited { .. }) {}
        let rate = 300.0 / start.elapsed().as_secs_f64();
        println!("tags {tag_output}, {}…: {rate:.0} MB/s", &script[..4]);
        assert!(supervisor.finish(LIMIT).output_complete);
    }
}
