//! The bulk-synchronous job that runtimes are compared with: it computes what the plain MPI program computes,
//! in any memory.
//!
//! The values of the C program are those of `benches/tools/phases.c`, compiled with `mpicc -O2` and run with
//! `mpiexec -np NP phases ARGS` (MPICH 4.0 of Debian, x86-64).

use crate::common::{Outcome, bdrun};

const MIB: u64 = 1 << 20;

/// Values of the C program: ranks, arguments, `check=`.
const C_PROGRAM: [(u32, &str, u64); 9] = [
    (1, "1 3 rw 4 1", 0x5bc1_3f2f_1a4c_ab00),
    (2, "3 2 rw 64 1", 0x08bd_5ccd_e11b_8000),
    (8, "16 3 rw 64 1", 0x2772_6693_dcc4_0000),
    (5, "7 4 rw 16 3", 0xc55b_434c_8b49_a6a0),
    (6, "2 5 rw 1 5", 0xb702_456a_0ab4_fc10),
    (4, "8 3 ro 64 1", 0x2573_7e08_ac09_0000),
    (4, "8 3 q 64 1", 0x5139_20b2_e009_0000),
    (3, "5 4 q 8 7", 0x57d3_9431_a076_9b74),
    (2, "4 3 ro 0 2", 0x7857_9b65_cba0_0000),
];

fn phases(options: &str, job: &str) -> Outcome {
    bdrun(&format!("{options} phases {job}")).succeed()
}

/// The value at the end of the program's last line.
fn check(outcome: &Outcome) -> u64 {
    let (_, value) = outcome.stdout.trim_end().rsplit_once(" check=").expect("a line that ends with check=");
    u64::from_str_radix(value, 16).expect("a hexadecimal number")
}

/// What the job computes in mode `rw`, without its memory: all words of a rank go through the same linear
/// map, so their sum goes through it too, and only the sums are ever sent.
fn reference(ranks: u64, mib: u64, phases: u64, message_kib: u64, chunks: u64) -> u64 {
    const FACTOR: u64 = 6_364_136_223_846_793_005;
    let words = mib * MIB / 8 / chunks * chunks;
    let message = message_kib * 1024 / 8;
    // Halved before it is cut to 64 bits.
    let triangle = (u128::from(words) * u128::from(words - 1) / 2) as u64;
    let mut sums: Vec<u64> = (1..=ranks)
        .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(words).wrapping_add(triangle))
        .collect();
    let mut accs = vec![0u64; ranks as usize];
    for phase in 0..phases {
        for sum in &mut sums {
            *sum = sum.wrapping_mul(FACTOR).wrapping_add(phase.wrapping_mul(words));
        }
        let total = sums.iter().fold(0u64, |a, &b| a.wrapping_add(b));
        for (to, acc) in (0u64..).zip(&mut accs) {
            for from in &sums {
                for i in 0..message {
                    *acc = acc.wrapping_mul(1_099_511_628_211).wrapping_add(from.wrapping_add(31 * to + i));
                }
            }
            *acc = acc.wrapping_add(total);
        }
    }
    accs.iter().fold(0, |a, &b| a.wrapping_add(b))
}

#[test]
fn the_reference_is_the_c_program() {
    let known = C_PROGRAM.into_iter().chain([(8, "512 5 rw 512 1", 0xbdf8_8c69_54e0_0000)]);
    for (ranks, job, expected) in known.filter(|(_, job, _)| job.contains("rw")) {
        let numbers: Vec<u64> = job.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [mib, phases, message_kib, chunks] = numbers[..] else { panic!("{job}") };
        assert_eq!(
            reference(ranks.into(), mib, phases, message_kib, chunks),
            expected,
            "-np {ranks} phases {job}"
        );
    }
}

#[test]
fn it_computes_what_the_c_program_computes() {
    for (np, job, expected) in C_PROGRAM {
        let outcome = phases(&format!("-np {np} --memory 8G"), job);
        assert_eq!(check(&outcome), expected, "-np {np} phases {job}");
        assert_eq!(outcome.stats().evicted_bytes, 0, "{:?}", outcome.stats());
    }
}

#[test]
fn a_quarter_of_its_memory_gives_the_same_result() {
    let expected = reference(8, 32, 3, 64, 1);
    let ample = phases("-np 8 --memory 8G", "32 3 rw 64 1");
    assert_eq!(check(&ample), expected);
    assert_eq!(ample.stats().evicted_bytes, 0, "{:?}", ample.stats());

    let tight = phases("-np 8 --memory 64M", "32 3 rw 64 1");
    assert_eq!(check(&tight), expected);
    let stats = tight.stats();
    assert!(stats.demand_bytes >= 4 * stats.budget_bytes, "{stats:?}");
    assert!(stats.peak_resident_bytes <= stats.budget_bytes, "{stats:?}");
    // What does not fit has to go out in each phase.
    assert!(stats.evicted_bytes >= 3 * (stats.demand_bytes - stats.budget_bytes), "{stats:?}");
    assert!(stats.scratch_read_bytes > 0 && stats.overdraft_rank.is_none(), "{stats:?}");

    // The modes that write less, and memory in pieces.
    for job in ["32 2 ro 64 1", "32 2 q 64 7"] {
        let ample = phases("-np 8 --memory 8G", job);
        let tight = phases("-np 8 --memory 64M", job);
        assert_eq!(check(&tight), check(&ample), "{job}");
        assert!(tight.stats().evicted_bytes > 0, "{job}: {:?}", tight.stats());
    }
}
