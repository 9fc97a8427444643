//! Names in tables and lists.

/// A name as it stands in a table: what would end its field is escaped, and `also` with it.
pub fn shown(name: &str, also: Option<char>) -> String {
    let mut shown = String::with_capacity(name.len());
    for letter in name.chars() {
        if letter.is_control() || letter == '\\' {
            shown.extend(letter.escape_default());
        } else if also == Some(letter) {
            shown.extend(['\\', letter]);
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_fields() {
        for (name, table, list) in [
            ("G27.fa", "G27.fa", "G27.fa"),
            ("a b,c", "a b,c", r"a b\,c"),
            ("a\tb\nc", r"a\tb\nc", r"a\tb\nc"),
            (r"a\tb", r"a\\tb", r"a\\tb"),
            ("größer", "größer", "größer"),
        ] {
            assert_eq!(shown(name, None), table);
            assert_eq!(shown(name, Some(',')), list);
        }
    }
}
