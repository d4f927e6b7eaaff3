//! SELECT: find the series, put them together by tags, and compute the rows of each.
//!
//! May use: everything of this module but SHOW. Must not know: protocols.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::Env;
use super::aggregate::Job;
use super::answer::{Cell, Sink};
use super::ast::{Dimension, From, Order, Page, Select};
use super::condition::{Condition, nanos};
use super::filter::Filter;
use super::input::{Input, names};
use super::plan::Plan;
use super::times::Clock;
use super::window::Window;
use crate::error::{Error, Result};
use crate::source::Range;

/// What a series of the answer is known by: a metric, and the values of the tags that are grouped by.
type Name<'i> = (&'i str, Vec<&'i str>);
/// Members of an input, by the series of the answer that they are part of.
type Groups<'i> = BTreeMap<Name<'i>, Vec<usize>>;

/// Answers a selection, of times within `bound`.
pub(crate) fn select(env: &Env<'_>, select: &Select, bound: Range, sink: &mut dyn Sink) -> Result<()> {
    let clock = Clock { now: env.now, zone: select.zone.as_ref() };
    let mut condition = Condition::of(select.condition.as_ref(), clock)?;
    condition.range = Range { from: condition.range.from.max(bound.from), to: condition.range.to.min(bound.to) };
    if let Some(within) = select.within {
        condition.range = within;
    }
    let input = input(env, select, &condition)?;
    let rest = condition.rest(&input.fields);
    let filter = Filter::new(rest.as_ref(), &input)?;
    let dimensions = dimensions(select, &input);
    let window = window(select, clock)?;
    let plan = Plan::of(select, &input, &dimensions)?;
    let mut range = condition.range;
    if window.is_some() && range.to == i64::MAX {
        range.to = env.now;
    }
    if range.from > range.to {
        return Ok(());
    }
    let groups = chosen(groups(&input, &dimensions), select.page, select.order);
    let Page { limit, offset, .. } = select.page;
    let rows_max = if limit == 0 { 0 } else { limit.saturating_add(offset) };
    let (fill, order) = (select.fill, select.order);
    let names: Vec<&str> = plan.calls().map(|call| call.operand().name.as_str()).collect();
    let classes = input.classes(&names);
    let job = Job { input: &input, filter: &filter, plan: &plan, range, window, fill, order, rows_max, classes };
    let is_raw = plan.calls().next().is_none();
    for ((metric, values), members) in groups {
        let tags: Vec<(&str, &str)> = dimensions.iter().map(String::as_str).zip(values).collect();
        let mut rows = 0_usize;
        let mut emit = |time: i64, cells: &[Cell<'_>]| {
            rows += 1;
            if rows <= offset {
                return Ok(ControlFlow::Continue(()));
            }
            if rows == offset + 1 {
                sink.series(metric, &tags, &plan.columns)?;
            }
            sink.row(Some(time), cells)?;
            Ok(if rows == rows_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        let held = input.held.bytes();
        if is_raw {
            job.raw(&members, &mut emit)?
        } else {
            job.functions(&members, &mut emit)?
        }
        input.let_go(held);
    }
    Ok(())
}

fn input<'a>(env: &Env<'a>, select: &Select, condition: &Condition) -> Result<Input<'a>> {
    let mut input = Input::new(env.source);
    for from in &select.from {
        if let From::Select(inner) = from {
            // What is grouped by outside has to be told apart inside.
            let mut inner = inner.as_ref().clone();
            inner.dimensions.extend(select.dimensions.iter().cloned());
            input.add_selected(env, &inner, condition)?;
        }
    }
    for from in &select.from {
        if let From::Measurement(measurement) = from {
            let rest = condition.rest(&input.fields);
            let exprs = select.fields.iter().map(|field| &field.expr).filter(|expr| !is_open(expr));
            let wanted =
                if select.fields.iter().any(|field| is_open(&field.expr)) { None } else { names(exprs.chain(&rest)) };
            input.add_stored(env, measurement, condition, wanted)?;
        }
    }
    Ok(input)
}

fn is_open(expr: &super::ast::Expr) -> bool {
    matches!(expr, super::ast::Expr::Star(_) | super::ast::Expr::Regex(_))
}

fn dimensions(select: &Select, input: &Input<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for dimension in &select.dimensions {
        match dimension {
            Dimension::Tag(tag) => all.push(tag.clone()),
            Dimension::All => all.extend(input.tag_names()),
            Dimension::Regex(regex) => all.extend(input.tag_names().into_iter().filter(|tag| regex.is_match(tag))),
        }
    }
    all.sort();
    all.dedup();
    all
}

pub(crate) fn window(select: &Select, clock: Clock<'_>) -> Result<Option<Window>> {
    let Some(every) = &select.every else { return Ok(None) };
    let offset = match &every.offset {
        None => 0,
        Some(offset) => nanos(offset, clock)?.ok_or_else(|| Error::invalid("time dimension offset must be a time"))?,
    };
    Ok(Some(Window::new(every.length, offset, select.zone.clone())))
}

fn groups<'i>(input: &'i Input<'_>, dimensions: &[String]) -> Groups<'i> {
    let mut groups = Groups::new();
    for (at, member) in input.members.iter().enumerate() {
        let values = dimensions.iter().map(|tag| member.key.tag(tag)).collect();
        groups.entry((member.key.metric.as_str(), values)).or_default().push(at);
    }
    groups
}

/// The groups that SLIMIT and SOFFSET leave, of each metric, in the order of the answer.
fn chosen<'i>(groups: Groups<'i>, page: Page, order: Order) -> Vec<(Name<'i>, Vec<usize>)> {
    let mut chosen = Vec::with_capacity(groups.len());
    let (mut metric, mut nth) = ("", 0_usize);
    for (key, members) in groups {
        if key.0 != metric {
            (metric, nth) = (key.0, 0);
        }
        nth += 1;
        let end = page.series_offset.saturating_add(page.series_limit);
        if nth > page.series_offset && (page.series_limit == 0 || nth <= end) {
            chosen.push((key, members));
        }
    }
    if order == Order::Descending {
        chosen.reverse();
    }
    chosen
}
