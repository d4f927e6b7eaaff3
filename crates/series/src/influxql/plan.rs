//! What a selection answers: its columns, after stars and patterns have become names, and how each is computed.
//!
//! May use: `ast`, `call`, `node`, `input`. Must not know: how points are read.

use std::collections::BTreeMap;

use super::ast::{Binary, Call, Expr, Field, Operand, Select, Star};
use super::call::{self, Aggregate, Applied};
use super::cast::Class;
use super::input::Input;
use super::node::Node;
use crate::error::{Error, Result};

/// Columns of one answer.
const COLUMNS_MAX: usize = 10_000;

/// What one slot of the columns' expressions holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Slot {
    /// A field or a tag.
    Name(Operand),
    Call(Applied),
}

#[derive(Debug)]
pub(crate) struct Plan {
    /// Names of columns, `time` first.
    pub(crate) columns: Vec<String>,
    /// One for each column but the first.
    pub(crate) nodes: Vec<Node>,
    pub(crate) slots: Vec<Slot>,
}

impl Plan {
    /// # Errors
    /// [`Error::Invalid`] in InfluxDB's words when columns cannot be computed or do not go together.
    pub(crate) fn of(select: &Select, input: &Input<'_>, dimensions: &[String]) -> Result<Self> {
        let fields = expand(select, input, dimensions)?;
        if fields.is_empty() && select.fields.iter().all(|field| matches!(field.expr, Expr::Name(_))) {
            return Err(Error::invalid("at least 1 non-time field must be queried"));
        }
        let (mut slots, mut nodes) = (Vec::new(), Vec::new());
        for field in &fields {
            let node = Node::of(&field.expr, &mut |expr| {
                let slot = match expr {
                    Expr::Call(call) => Slot::Call(call::of(call)?),
                    other => Slot::Name(other.operand().ok_or_else(|| Error::invalid("invalid expression in SELECT"))?),
                };
                Ok(slots.iter().position(|known| *known == slot).unwrap_or_else(|| {
                    slots.push(slot);
                    slots.len() - 1
                }))
            });
            nodes.push(node?);
        }
        let time = select.fields.iter().find(|field| matches!(&field.expr, Expr::Name(name) if name == "time"));
        let mut columns = vec![time.and_then(|field| field.alias.clone()).unwrap_or_else(|| "time".to_owned())];
        columns.extend(names(&fields));
        let plan = Self { columns, nodes, slots };
        plan.check(select)?;
        Ok(plan)
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = &Applied> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Call(applied) => Some(applied),
            Slot::Name(_) => None,
        })
    }

    /// The one function of a selection that only chooses points.
    pub(crate) fn selector(&self) -> Option<&Aggregate> {
        let mut calls = self.calls();
        match (calls.next(), calls.next()) {
            (Some(Applied::Aggregate(aggregate, _)), None) if aggregate.is_selector() => Some(aggregate),
            _ => None,
        }
    }

    fn check(&self, select: &Select) -> Result<()> {
        let calls: Vec<&Applied> = self.calls().collect();
        let has_names = calls.len() < self.slots.len();
        if calls.is_empty() {
            return match select.every {
                Some(_) if !self.nodes.is_empty() => {
                    Err(Error::invalid("GROUP BY requires at least one aggregate function"))
                }
                _ => Ok(()),
            };
        }
        for call in &calls {
            let is_alone = calls.len() == 1 && !has_names;
            match call.aggregate() {
                Some(Aggregate::Distinct) if !is_alone => {
                    let text = "aggregate function distinct() cannot be combined with other functions or fields";
                    return Err(Error::invalid(text));
                }
                Some(aggregate) if aggregate.keeps_times() && calls.len() > 1 => {
                    let name = if matches!(aggregate, Aggregate::Top(..)) { "top" } else { "bottom" };
                    let text = format!("selector function {name}() cannot be combined with other functions");
                    return Err(Error::invalid(text));
                }
                _ => {}
            }
            match (call, &select.every) {
                (Applied::OfField(transform, _), Some(_)) => {
                    let text = format!("aggregate function required inside the call to {}", transform.name());
                    return Err(Error::invalid(text));
                }
                (Applied::OfCall(transform, _), None) => {
                    return Err(Error::invalid(format!("{} aggregate requires a GROUP BY interval", transform.name())));
                }
                _ => {}
            }
        }
        if has_names && self.selector().is_none() {
            let selectors = calls.iter().all(|call| match call {
                Applied::Aggregate(aggregate, _) => aggregate.is_selector(),
                _ => false,
            });
            return Err(Error::invalid(match selectors {
                true => "mixing multiple selector functions with tags or fields is not supported",
                false => "mixing aggregate and non-aggregate queries is not supported",
            }));
        }
        Ok(())
    }
}

/// What stars and patterns stand for.
struct Names {
    fields: Vec<(String, Class)>,
    /// Tags that are not grouped by.
    tags: Vec<String>,
}

impl Names {
    /// Fields and tags that a star or a pattern means, in the order of their names.
    fn matching(&self, star: &Expr) -> Vec<String> {
        let fields = self.fields.iter().map(|(name, _)| name);
        let mut names: Vec<&String> = match star {
            Expr::Star(Star::Fields) => fields.collect(),
            Expr::Star(Star::Tags) => self.tags.iter().collect(),
            Expr::Regex(regex) => fields.chain(&self.tags).filter(|name| regex.is_match(name)).collect(),
            _ => fields.chain(&self.tags).collect(),
        };
        names.sort();
        names.dedup();
        names.into_iter().cloned().collect()
    }

    /// Fields that a star or a pattern within a call means.
    fn fields(&self, star: &Expr, function: &str) -> Vec<String> {
        let taken = self.fields.iter().filter(|(_, class)| call::takes(function, *class)).map(|(name, _)| name);
        match star {
            Expr::Regex(regex) => taken.filter(|name| regex.is_match(name)).cloned().collect(),
            _ => taken.cloned().collect(),
        }
    }
}

fn is_open(expr: &Expr) -> bool {
    matches!(expr, Expr::Star(_) | Expr::Regex(_))
}

/// The star or pattern that a call is applied to, and the function that is.
fn open_argument(call: &Call) -> Option<(&str, &Expr)> {
    match call.arguments.first()? {
        Expr::Call(inner) => open_argument(inner),
        first => is_open(first).then_some((call.name.as_str(), first)),
    }
}

fn with_argument(call: &Call, name: &str) -> Call {
    let mut call = call.clone();
    if let Some(first) = call.arguments.first_mut() {
        *first = match first {
            Expr::Call(inner) => Expr::Call(with_argument(inner, name)),
            _ => Expr::Name(name.to_owned()),
        };
    }
    call
}

fn expand(select: &Select, input: &Input<'_>, dimensions: &[String]) -> Result<Vec<Field>> {
    let needs_names = select.fields.iter().any(|field| match &field.expr {
        Expr::Call(call) => open_argument(call).is_some(),
        expr => is_open(expr),
    });
    let mut known = Names { fields: Vec::new(), tags: Vec::new() };
    if needs_names {
        known.fields = input.field_classes();
        known.tags = input.tag_names();
        known.tags.retain(|tag| !dimensions.contains(tag));
    }
    let mut all = Vec::new();
    for field in &select.fields {
        match &field.expr {
            Expr::Name(name) if name == "time" => {}
            open if is_open(open) => {
                let names = known.matching(open).into_iter();
                all.extend(names.map(|name| Field { expr: Expr::Name(name), alias: None }));
            }
            Expr::Call(call) if open_argument(call).is_some() => {
                let Some((function, star)) = open_argument(call) else { continue };
                let prefix = field.alias.as_ref().unwrap_or(&call.name);
                all.extend(known.fields(star, function).into_iter().map(|name| Field {
                    expr: Expr::Call(with_argument(call, &name)),
                    alias: Some(format!("{prefix}_{name}")),
                }));
            }
            expr => {
                all.push(field.clone());
                // The tags of `top(field, tag, n)` are columns too.
                if let Expr::Call(call) = expr
                    && matches!(call.name.as_str(), "top" | "bottom")
                    && let Applied::Aggregate(Aggregate::Top(_, tags) | Aggregate::Bottom(_, tags), _) = call::of(call)?
                {
                    all.extend(tags.into_iter().map(|tag| Field { expr: Expr::Name(tag), alias: None }));
                }
            }
        }
        if all.len() > COLUMNS_MAX {
            return Err(Error::Limit {
                what: "the number of columns",
                actual: all.len() as u64,
                limit: COLUMNS_MAX as u64,
            });
        }
    }
    Ok(all)
}

/// The names of columns: aliases, then names of functions and fields, with numbers where one comes again.
fn names(fields: &[Field]) -> Vec<String> {
    let mut taken: BTreeMap<String, usize> =
        fields.iter().filter_map(|field| field.alias.clone()).map(|alias| (alias, 1)).collect();
    let mut columns = Vec::with_capacity(fields.len());
    for field in fields {
        if let Some(alias) = &field.alias {
            columns.push(alias.clone());
            continue;
        }
        let name = name(&field.expr);
        let mut own = name.clone();
        if let Some(count) = taken.get(&name).copied() {
            let numbered = (count..).map(|count| (count, format!("{name}_{count}")));
            let mut free = numbered.filter(|(_, numbered)| !taken.contains_key(numbered));
            if let Some((count, numbered)) = free.next() {
                own = numbered;
                taken.insert(name, count + 1);
            }
        }
        taken.insert(own.clone(), 1);
        columns.push(own);
    }
    columns
}

fn name(expr: &Expr) -> String {
    fn parts(expr: &Expr, to: &mut Vec<String>) {
        match expr {
            Expr::Name(name) | Expr::Cast(Operand { name, .. }) => to.push(name.clone()),
            Expr::Call(call) => to.push(call.name.clone()),
            Expr::Binary(binary) => {
                let Binary { left, right, .. } = binary.as_ref();
                parts(left, to);
                parts(right, to);
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    parts(expr, &mut all);
    all.join("_")
}
