//! KV.KEYS and KV.RANGE: a bucket in key order, a page at a time.
//!
//! May use: `call`, `own` for what all KV.* share, `glob`. Must not know: sockets, dispatch.

use std::ops::Bound;

use holdfast::Page;

use super::own::{LIMIT_DEFAULT, page_limit, reading, write_durability, write_version};
use crate::resp::call::{Answer, Call, Fail, SYNTAX};
use crate::resp::effort::Use;
use crate::resp::glob;

/// The options of KV.KEYS and KV.RANGE.
struct Window<'a> {
    start: Option<&'a [u8]>,
    end: Option<&'a [u8]>,
    prefix: &'a [u8],
    pattern: Option<&'a [u8]>,
    limit: usize,
    values: bool,
}

impl<'a> Window<'a> {
    fn parse(call: &mut Call<'a, '_>, is_range: bool) -> Result<Self, Fail> {
        let args = call.args();
        let mut window =
            Window { start: None, end: None, prefix: b"", pattern: None, limit: LIMIT_DEFAULT, values: false };
        let mut index = 2;
        while let Some(option) = args.get(index) {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            if is_range && is("values") {
                window.values = true;
                index += 1;
                continue;
            }
            let value = args.get(index + 1).ok_or(SYNTAX)?;
            if is("start") {
                window.start = Some(value);
            } else if is("end") {
                window.end = Some(value);
            } else if is("prefix") {
                window.prefix = value;
            } else if !is_range && is("match") {
                window.pattern = Some(value);
            } else if is("limit") {
                window.limit = page_limit("LIMIT", value)?.min(call.door.options.limits.scan_count_max);
            } else if !reading(call, option, index)? {
                return Err(SYNTAX.into());
            }
            index += 2;
        }
        Ok(window)
    }

    /// The first key behind all keys with the prefix, if there is one.
    fn behind_prefix(&self) -> Option<Vec<u8>> {
        let mut key = self.prefix.to_vec();
        while let Some(last) = key.pop() {
            if last < u8::MAX {
                key.push(last + 1);
                return Some(key);
            }
        }
        None
    }
}

/// One page of a bucket: entries, and where the next page starts.
fn page(
    call: &mut Call<'_, '_>,
    bucket: &[u8],
    window: &Window<'_>,
) -> Result<(holdfast::PageOut, Option<Vec<u8>>), Fail> {
    let behind = window.behind_prefix();
    let start = window.start.unwrap_or_default().max(window.prefix);
    let end = match (window.end, behind.as_deref()) {
        (Some(end), Some(behind)) => Bound::Excluded(end.min(behind)),
        (Some(end), None) | (None, Some(end)) => Bound::Excluded(end),
        (None, None) => Bound::Unbounded,
    };
    if let Bound::Excluded(end) = end
        && end <= start
    {
        return Ok((holdfast::PageOut { entries: Vec::new(), more: false }, None));
    }
    call.session.effort.add_items(window.limit)?;
    let heads = Page { bucket, start: Bound::Included(start), end, limit: window.limit, values: false };
    let mut out = call.view.page(&heads)?;
    if window.values {
        // Values are fetched when they are known to fit: of a page each may be as large as any.
        let bytes = out.entries.iter().fold(0u64, |bytes, (_, head, _)| bytes.saturating_add(head.value_bytes));
        let bytes_max = call.door.options.limits.output_bytes_max;
        if bytes > bytes_max as u64 {
            return Err(Fail::TooBig(bytes_max));
        }
        call.session.effort.add(bytes, Use::Show)?;
        out = call.view.page(&Page { values: true, ..heads })?;
    }
    // The smallest key behind the last one shown.
    let next = out.entries.last().filter(|_| out.more).map(|(key, _, _)| [key.as_slice(), b"\0"].concat());
    Ok((out, next))
}

fn write_next(call: &mut Call<'_, '_>, next: Option<Vec<u8>>) {
    match next {
        Some(next) => call.reply.bulk(&next),
        None => call.reply.null(),
    }
    write_durability(call);
}

pub(crate) fn keys(call: &mut Call<'_, '_>) -> Answer {
    let window = Window::parse(call, false)?;
    let (out, next) = page(call, call.args.at(1), &window)?;
    let keys: Vec<Vec<u8>> = out
        .entries
        .into_iter()
        .map(|(key, _, _)| key)
        .filter(|key| window.pattern.is_none_or(|pattern| glob::matches(pattern, key)))
        .collect();
    call.reply.array(3);
    call.reply.array(keys.len());
    keys.iter().for_each(|key| call.reply.bulk(key));
    write_next(call, next);
    Ok(())
}

pub(crate) fn range(call: &mut Call<'_, '_>) -> Answer {
    let window = Window::parse(call, true)?;
    let (out, next) = page(call, call.args.at(1), &window)?;
    call.reply.array(3);
    call.reply.array(out.entries.len());
    for (key, head, value) in &out.entries {
        call.reply.array(if window.values { 4 } else { 3 });
        call.reply.bulk(key);
        write_version(call, head.version);
        call.reply.unsigned(head.value_bytes);
        if window.values {
            match value {
                Some(value) => call.reply.bulk(value.as_ref()),
                None => call.reply.null(),
            }
        }
    }
    write_next(call, next);
    Ok(())
}
