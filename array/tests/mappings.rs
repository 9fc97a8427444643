//! As many mappings as a process may have: what is released goes back to the kernel all the same.

use bdrun_array::{Block, DType};

/// The least of what is a mapping.
const BYTES: usize = 128 << 10;

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap() * 4096
}

#[test]
fn bytes_go_back_where_there_is_no_room_for_another_mapping() {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let most: usize = most.trim().parse().unwrap();
    let block = || Block::zeros(DType::Bool, &[BYTES]);
    // Side by side, they are one mapping; without every second one they are as many as are left.
    let blocks =
        if most > 1 << 18 { Vec::new() } else { (0..2 * (most + 512)).map_while(|_| block().ok()).collect() };
    if blocks.len() < 2 * most {
        return bdrun_skipped::skipped(
            "kernel",
            format!("{most} are too many to be made, or addresses too few"),
        );
    }
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for (number, block) in blocks.into_iter().enumerate() {
        if number % 2 == 0 { kept.push(block) } else { dropped.push(block) }
    }
    // Those for which there is no room any more.
    let mut last = dropped.split_off(most);
    last.iter_mut().for_each(|block| block.bytes_mut().fill(1));
    drop(dropped);
    let before = resident();
    let bytes = last.len() * BYTES;
    drop(last);
    let given = before.saturating_sub(resident());
    drop(kept);
    assert!(given > bytes / 10 * 9, "{given} of {bytes} bytes");
}

#[test]
fn what_there_is_no_memory_for_says_what_may_lack() {
    let error = Block::zeros(DType::Bool, &[1 << 46]).map(|_| ()).unwrap_err();
    let text = error.to_string();
    assert!(error.kind() == std::io::ErrorKind::OutOfMemory && text.contains("vm.max_map_count"), "{text}");
}
