//! FlatBuffers, as far as Arrow's metadata needs them: tables are written front to back, each behind its table of offsets.
//!
//! A buffer is the offset of its root (4 bytes), then objects, aligned to what is largest in them. An offset counts from where it
//! stands to its object. A *table* begins with how far before it its offsets are (4); these are the length of themselves and of the
//! table (2 each), and for each field where in the table it is, or 0. A *text* is its length (4), its bytes and a zero; a *list* is
//! its count (4) and its items. Everything is little-endian.
//!
//! Described at <https://flatbuffers.dev/internals/>
//!
//! May use: std. Must not know: Arrow.

/// An object.
pub(crate) enum Object {
    /// A table: the numbers of its fields and what they hold.
    Table(Vec<(u16, Field)>),
    Text(String),
    /// A list of objects.
    List(Vec<Object>),
    /// A list of records of two 64-bit integers.
    Pairs(Vec<(i64, i64)>),
}

/// What a field of a table holds.
pub(crate) enum Field {
    Byte(u8),
    Short(i16),
    Int(i32),
    Long(i64),
    Is(Object),
}

impl Field {
    fn bytes(&self) -> usize {
        match self {
            Self::Byte(_) => 1,
            Self::Short(_) => 2,
            Self::Int(_) | Self::Is(_) => 4,
            Self::Long(_) => 8,
        }
    }
}

/// The whole buffer, a multiple of eight bytes long.
pub(crate) fn buffer(root: &Object) -> Vec<u8> {
    let mut to = vec![0; 4];
    let at = put(root, &mut to);
    set_offset(&mut to, 0, at);
    pad(&mut to, 8, 0);
    to
}

/// Fills up to where, `more` bytes later, it is aligned.
fn pad(to: &mut Vec<u8>, alignment: usize, more: usize) {
    while !(to.len() + more).is_multiple_of(alignment) {
        to.push(0);
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).expect("metadata is far smaller than 4 GiB")
}

/// Has the offset that stands at `from` lead to `target`.
fn set_offset(to: &mut [u8], from: usize, target: usize) {
    let offset = count(target - from).to_le_bytes();
    to.get_mut(from..from + 4).expect("was written").copy_from_slice(&offset);
}

/// Writes an object; where it is.
fn put(object: &Object, to: &mut Vec<u8>) -> usize {
    match object {
        Object::Table(fields) => table(fields, to),
        Object::Text(text) => {
            pad(to, 4, 0);
            let at = to.len();
            to.extend_from_slice(&count(text.len()).to_le_bytes());
            to.extend_from_slice(text.as_bytes());
            to.push(0);
            at
        }
        Object::List(items) => {
            pad(to, 4, 0);
            let at = to.len();
            to.extend_from_slice(&count(items.len()).to_le_bytes());
            to.resize(to.len() + 4 * items.len(), 0);
            for (nth, item) in items.iter().enumerate() {
                let target = put(item, to);
                set_offset(to, at + 4 + 4 * nth, target);
            }
            at
        }
        Object::Pairs(pairs) => {
            // The records are aligned, not their count.
            pad(to, 8, 4);
            let at = to.len();
            to.extend_from_slice(&count(pairs.len()).to_le_bytes());
            for (first, second) in pairs {
                to.extend_from_slice(&first.to_le_bytes());
                to.extend_from_slice(&second.to_le_bytes());
            }
            at
        }
    }
}

fn table(fields: &[(u16, Field)], to: &mut Vec<u8>) -> usize {
    let short = |number: usize| u16::try_from(number).expect("tables have few fields").to_le_bytes();
    // The largest first, behind the four bytes that lead to the offsets and four that keep what follows aligned.
    let mut order: Vec<&(u16, Field)> = fields.iter().collect();
    order.sort_by_key(|(_, field)| std::cmp::Reverse(field.bytes()));
    let mut places = Vec::new();
    let mut size = 8;
    for (number, field) in order {
        places.push((*number, size, field));
        size += field.bytes();
    }
    let slots = fields.iter().map(|(number, _)| usize::from(*number) + 1).max().unwrap_or(0);
    pad(to, 2, 0);
    let offsets = to.len();
    to.extend_from_slice(&short(4 + 2 * slots));
    to.extend_from_slice(&short(size));
    for slot in 0..slots {
        let place = places.iter().find(|(number, ..)| usize::from(*number) == slot).map_or(0, |(_, place, _)| *place);
        to.extend_from_slice(&short(place));
    }
    pad(to, 8, 0);
    let at = to.len();
    to.extend_from_slice(&count(at - offsets).to_le_bytes());
    to.resize(at + size, 0);
    for (_, place, field) in places {
        let at = at + place;
        let mut set =
            |bytes: &[u8]| to.get_mut(at..at + bytes.len()).expect("was made room for").copy_from_slice(bytes);
        match field {
            Field::Byte(value) => set(&[*value]),
            Field::Short(value) => set(&value.to_le_bytes()),
            Field::Int(value) => set(&value.to_le_bytes()),
            Field::Long(value) => set(&value.to_le_bytes()),
            Field::Is(object) => {
                let target = put(object, to);
                set_offset(to, at, target);
            }
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u32_at(bytes: &[u8], at: usize) -> usize {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
    }

    /// Where a table's field is.
    fn field(bytes: &[u8], table: usize, number: usize) -> usize {
        let offsets = table - u32_at(bytes, table);
        let length = usize::from(u16::from_le_bytes(bytes[offsets..offsets + 2].try_into().unwrap()));
        assert!(4 + 2 * number < length);
        let place = offsets + 4 + 2 * number;
        table + usize::from(u16::from_le_bytes(bytes[place..place + 2].try_into().unwrap()))
    }

    fn follow(bytes: &[u8], at: usize) -> usize {
        at + u32_at(bytes, at)
    }

    #[test]
    fn what_is_written_is_found_by_its_offsets_and_aligned() {
        let inner = Object::Table(vec![(2, Field::Long(-5)), (0, Field::Byte(7))]);
        let texts = Object::List(vec![Object::Text("one".into()), Object::Text(String::new())]);
        let pairs = Object::Pairs(vec![(1, -2), (3, 4)]);
        let root = Object::Table(vec![
            (0, Field::Short(-3)),
            (1, Field::Is(inner)),
            (2, Field::Is(texts)),
            (4, Field::Is(pairs)),
            (5, Field::Int(9)),
        ]);
        let bytes = buffer(&root);
        assert_eq!(bytes.len() % 8, 0);
        let root = follow(&bytes, 0);
        assert_eq!(&bytes[field(&bytes, root, 0)..][..2], (-3_i16).to_le_bytes());
        assert_eq!(u32_at(&bytes, field(&bytes, root, 5)), 9);
        assert_eq!(field(&bytes, root, 3), root, "what is not there has the offset 0");
        let inner = follow(&bytes, field(&bytes, root, 1));
        let long = field(&bytes, inner, 2);
        assert_eq!((long % 8, &bytes[long..long + 8]), (0, &(-5_i64).to_le_bytes()[..]));
        assert_eq!(bytes[field(&bytes, inner, 0)], 7);
        let texts = follow(&bytes, field(&bytes, root, 2));
        assert_eq!(u32_at(&bytes, texts), 2);
        let one = follow(&bytes, texts + 4);
        assert_eq!((u32_at(&bytes, one), &bytes[one + 4..one + 8]), (3, &b"one\0"[..]));
        let pairs = follow(&bytes, field(&bytes, root, 4));
        assert_eq!((u32_at(&bytes, pairs), (pairs + 4) % 8), (2, 0));
        assert_eq!(&bytes[pairs + 12..pairs + 20], (-2_i64).to_le_bytes());
    }
}
