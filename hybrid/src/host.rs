//! Which machine this is, and which ranks are on it.

use std::io;
use std::sync::OnceLock;

/// The running kernel's own number (`boot_id`): the same for all processes of a machine, another for each
/// machine and boot.
pub fn identity() -> io::Result<[u64; 2]> {
    static IDENTITY: OnceLock<[u64; 2]> = OnceLock::new();
    if let Some(known) = IDENTITY.get() {
        return Ok(*known);
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let read = parse(&text).ok_or_else(|| io::Error::other(format!("the boot identity is '{text}'")))?;
    Ok(*IDENTITY.get_or_init(|| read))
}

/// Host, and which of those that share it: ranks that have both in common may share memory.
#[cfg(any(feature = "bdrun", feature = "mpi"))]
type Identity = [u64; 3];

/// Of ranks with these identities, those that have that of one of them: a number that they have in common,
/// the lowest such rank.
#[cfg(any(feature = "bdrun", feature = "mpi"))]
fn color(identities: &[u64], rank: usize) -> usize {
    let hosts: Vec<&[u64]> = identities.chunks(size_of::<Identity>() / 8).collect();
    hosts.iter().position(|host| *host == hosts[rank]).unwrap_or(rank)
}

/// The color of this rank of a communicator (a collective). `group`: which of those that share a host with
/// others, but nothing else, it belongs to.
#[cfg(any(feature = "bdrun", feature = "mpi"))]
pub fn color_in(comm: &dyn crate::transport::Transport, group: u64) -> crate::transport::Result<usize> {
    let identity = identity().map_err(|error| crate::Cause::System { what: "the host's identity", error });
    let [high, low] = *identity.as_ref().unwrap_or(&[0, 0]);
    // All take part, also one that does not know where it is.
    let all = crate::region::allgather(comm, &Identity::from([high, low, group]))?;
    identity?;
    // All end here, or the others would wait for it where they are put together.
    if let Some(rank) = all.chunks(3).position(|of| of[..2] == [0, 0]) {
        return Err(crate::Cause::Backend(format!("rank {rank} does not know its host's identity")));
    }
    Ok(color(&all, comm.rank()))
}

fn parse(text: &str) -> Option<[u64; 2]> {
    let digits: String = text.chars().filter(|c| *c != '-' && !c.is_whitespace()).collect();
    let number = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok())??;
    Some([(number >> 64) as u64, number as u64])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(any(feature = "bdrun", feature = "mpi"))]
    #[test]
    fn ranks_of_a_host_have_the_same_color_and_others_another() {
        let identities = [[1, 2, 0], [1, 3, 0], [1, 2, 0], [4, 2, 0], [1, 3, 0], [1, 2, 1], [1, 2, 1]];
        let colors: Vec<_> = (0..7).map(|rank| color(identities.as_flattened(), rank)).collect();
        assert_eq!(colors, [0, 1, 0, 3, 1, 5, 5]);
    }

    #[test]
    fn an_identity_is_read() {
        let text = "0123abcd-4567-89ab-cdef-0123456789ab\n";
        assert_eq!(parse(text), Some([0x0123_abcd_4567_89ab, 0xcdef_0123_4567_89ab]));
        assert_eq!(
            (parse(""), parse("0123"), parse("g123abcd-4567-89ab-cdef-0123456789ab")),
            (None, None, None)
        );
        assert_ne!(identity().unwrap(), [0, 0]);
    }
}
