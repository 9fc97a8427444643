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

fn parse(text: &str) -> Option<[u64; 2]> {
    let digits: String = text.chars().filter(|c| *c != '-' && !c.is_whitespace()).collect();
    let number = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok())??;
    Some([(number >> 64) as u64, number as u64])
}

#[cfg(test)]
mod tests {
    use super::*;

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
