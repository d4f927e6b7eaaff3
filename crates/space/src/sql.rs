//! Queries as text: SQL's SELECT, or only what follows its WHERE.
//!
//!   [EXPLAIN] SELECT * | path [AS name], aggregate [AS name], ... FROM type [WHERE condition] [GROUP BY path, ...]
//!   [HAVING condition] [ORDER BY path [ASC | DESC] [NULLS FIRST | LAST], ...] [LIMIT n] [OFFSET n]
//!
//!   [EXPLAIN] [condition] [GROUP BY ...] ... [ORDER BY ...] [LIMIT ...]
//!
//! The text is parsed by `sqlparser`, which knows far more SQL than there is here. Everything that it understood and we do not
//! do is refused by name: a clause that is passed over silently would give wrong answers.
//!
//! May use: `path`, `predicate`, `select`, `sqlparser`. Must not know: documents, indexes.

mod condition;
mod token;

use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use crate::error::{Result, invalid};
use crate::path::{Path, Step};
use crate::predicate::{Operand, Predicate};
use crate::select::{Aggregate, Amount, Direction, Function, Nulls, Order, Output, Projection, Query, Shown, Source};
use condition::Conditions;

/// How deep parentheses may lie within each other.
const RECURSION_MAX: usize = 24;

const CLAUSES: &str = "a query is SELECT .. FROM one type with WHERE, GROUP BY, HAVING, ORDER BY, LIMIT and OFFSET, or only \
                       the condition";

impl Query {
    /// The query that a text says.
    ///
    /// Names of fields are paths (see [`Path`]); those that are words of SQL (`"order"`, `"group"`) stand in double quotes.
    /// Parameters are `?` in the order of the text, or `$1`, `$2`. Strings stand in single quotes. `12.50` is an exact
    /// decimal, `1.25e1` an f64. `TIMESTAMP '2026-01-31T12:00:00Z'` and `X'00FF'` are timestamps and bytes.
    ///
    /// # Errors
    /// `Invalid` with what is wrong and what would be right; `Limit` when it is too long or too deep.
    pub fn parse(text: &str) -> Result<Self> {
        let tokens = token::tokens(text)?;
        let is_not = |token: &Token| matches!(token, Token::Word(word) if word.keyword == Keyword::NOT);
        let nots = tokens.tokens.iter().filter(|token| is_not(token)).count();
        let mut parser =
            Parser::new(&token::SpaceDialect).with_recursion_limit(RECURSION_MAX).with_tokens(tokens.tokens);
        let parsed = parser.parse_query().or_else(|error| invalid(format!("{}: {CLAUSES}", token::message(&error))))?;
        let behind = parser.peek_token();
        // Where there are too many the parser reads a shorter condition, and these are left over.
        if is_not(&behind.token) && nots >= RECURSION_MAX {
            return invalid(format!("{}: {CLAUSES}", token::message(&ParserError::RecursionLimitExceeded)));
        }
        if behind.token != Token::EOF {
            return invalid(format!("`{behind}` was not expected: {CLAUSES}"));
        }
        let mut query = query(*parsed)?;
        query.explain = tokens.explain;
        query.parameters = tokens.parameters;
        if tokens.condition_only {
            query.type_name = None;
        }
        query.predicate.check()?;
        query.having.as_ref().map_or(Ok(()), Predicate::check)?;
        Ok(query)
    }
}

/// Refuses what is there of these.
fn refuse(found: &[(bool, &str)]) -> Result<()> {
    match found.iter().find(|(is_there, _)| *is_there) {
        Some((_, name)) => invalid(format!("{name} is not supported: {CLAUSES}")),
        None => Ok(()),
    }
}

fn query(parsed: ast::Query) -> Result<Query> {
    // Every part is named, so that what a later sqlparser adds does not compile before somebody decides about it.
    let ast::Query {
        with,
        body,
        order_by,
        limit_clause,
        fetch,
        locks,
        for_clause,
        settings,
        format_clause,
        pipe_operators,
    } = parsed;
    refuse(&[
        (with.is_some(), "WITH"),
        (fetch.is_some(), "FETCH"),
        (!locks.is_empty(), "FOR UPDATE"),
        (for_clause.is_some(), "FOR"),
        (settings.is_some(), "SETTINGS"),
        (format_clause.is_some(), "FORMAT"),
        (!pipe_operators.is_empty(), "|>"),
    ])?;
    let select = match *body {
        ast::SetExpr::Select(select) => *select,
        ast::SetExpr::SetOperation { op, .. } => return invalid(format!("{op} is not supported: {CLAUSES}")),
        _ => return invalid(format!("what is no SELECT is not supported: {CLAUSES}")),
    };
    let mut query = self::select(select, order_by)?;
    (query.limit, query.offset) = window(limit_clause)?;
    Ok(query)
}

fn select(select: ast::Select, order_by: Option<ast::OrderBy>) -> Result<Query> {
    let ast::Select {
        select_token: _,
        optimizer_hint: _,
        distinct,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection,
        exclude,
        into,
        from,
        lateral_views,
        prewhere,
        selection,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having,
        named_window,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor,
    } = select;
    let is_distinct = match distinct {
        None | Some(ast::Distinct::All) => false,
        Some(ast::Distinct::Distinct) => true,
        Some(ast::Distinct::On(_)) => return invalid(format!("DISTINCT ON is not supported: {CLAUSES}")),
    };
    refuse(&[
        (select_modifiers.is_some(), "a modifier behind SELECT"),
        (top.is_some(), "TOP"),
        (exclude.is_some(), "EXCLUDE"),
        (into.is_some(), "INTO"),
        (!lateral_views.is_empty(), "LATERAL VIEW"),
        (prewhere.is_some(), "PREWHERE"),
        (!connect_by.is_empty(), "CONNECT BY"),
        (!cluster_by.is_empty(), "CLUSTER BY"),
        (!distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!sort_by.is_empty(), "SORT BY"),
        (!named_window.is_empty(), "WINDOW"),
        (qualify.is_some(), "QUALIFY"),
        (value_table_mode.is_some(), "AS VALUE"),
        (flavor != ast::SelectFlavor::Standard, "FROM before SELECT"),
    ])?;
    let predicate = match &selection {
        Some(condition) => Conditions { resolve: &mut path_of, rlikes: 0 }.condition(condition)?,
        None => Predicate::True,
    };
    let mut query = Query {
        explain: false,
        type_name: Some(type_name(from)?),
        predicate,
        projection: outputs(projection)?,
        group_by: paths_of_groups(group_by)?,
        having: None,
        order: Vec::new(),
        limit: None,
        offset: None,
        parameters: 0,
    };
    if is_distinct {
        query.group_by = distinct_paths(&query)?;
    }
    let keys = order_keys(order_by)?;
    if query.is_grouped() {
        let Projection::Outputs(outputs) = query.projection else {
            return invalid("with GROUP BY name what to select: paths that are grouped by, and aggregates");
        };
        let mut names = Names { outputs, group_by: &query.group_by };
        names.check()?;
        query.having = match &having {
            Some(condition) => {
                Some(Conditions { resolve: &mut |expr| names.resolve(expr), rlikes: 0 }.condition(condition)?)
            }
            None => None,
        };
        query.order = orders(keys, |expr| names.resolve(expr))?;
        query.projection = Projection::Outputs(names.outputs);
    } else {
        refuse(&[(having.is_some(), "HAVING without GROUP BY or an aggregate")])?;
        query.order = orders(keys, |expr| Ok(alias_of(&query.projection, path_of(expr)?)))?;
    }
    if let Some(path) =
        query.group_by.iter().chain(query.order.iter().map(|key| &key.path)).find(|path| path.has_items())
    {
        return invalid(format!("{path} comes to many values: GROUP BY and ORDER BY need paths without [*]"));
    }
    Ok(query)
}

fn type_name(mut from: Vec<ast::TableWithJoins>) -> Result<String> {
    let Some(table) = from.pop() else { return invalid(format!("FROM is missing: {CLAUSES}")) };
    refuse(&[(!from.is_empty(), "more than one type behind FROM"), (!table.joins.is_empty(), "JOIN")])?;
    match table.relation {
        ast::TableFactor::Table {
            name,
            alias,
            args,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } => {
            let has_more = args.is_some() || !with_hints.is_empty() || version.is_some() || with_ordinality;
            let has_more = has_more
                || !partitions.is_empty()
                || json_path.is_some()
                || sample.is_some()
                || !index_hints.is_empty();
            refuse(&[(alias.is_some(), "another name for the type"), (has_more, "what follows the type's name")])?;
            let parts: Option<Vec<_>> =
                name.0.iter().map(|part| part.as_ident().map(|ident| ident.value.as_str())).collect();
            parts.map(|parts| parts.join(".")).map_or_else(|| invalid("behind FROM comes the name of a type"), Ok)
        }
        ast::TableFactor::Derived { .. } => invalid(format!("a subquery behind FROM is not supported: {CLAUSES}")),
        _ => invalid(format!("what is no type's name behind FROM is not supported: {CLAUSES}")),
    }
}

fn outputs(items: Vec<ast::SelectItem>) -> Result<Projection> {
    if matches!(items.as_slice(), [ast::SelectItem::Wildcard(options)] if *options == ast::WildcardAdditionalOptions::default())
    {
        return Ok(Projection::All);
    }
    let mut outputs: Vec<Output> = Vec::new();
    for item in items {
        let (expr, alias) = match item {
            ast::SelectItem::UnnamedExpr(expr) => (expr, None),
            ast::SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias.value)),
            _ => return invalid("`*` among others is not supported: select * alone, or paths and aggregates"),
        };
        let (source, text) = match aggregate_of(&expr)? {
            Some(aggregate) => (Source::Aggregate(aggregate.clone()), aggregate.to_string()),
            None => path_of(&expr).map(|path| (Source::Path(path.clone()), path.to_string()))?,
        };
        let name = alias.unwrap_or(text);
        if outputs.iter().any(|other| other.name == name) {
            return invalid(format!("two outputs are called {name}: name one with AS"));
        }
        outputs.push(Output { name, source, shown: Shown::Yes });
    }
    Ok(Projection::Outputs(outputs))
}

fn paths_of_groups(group_by: ast::GroupByExpr) -> Result<Vec<Path>> {
    match group_by {
        ast::GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => exprs.iter().map(path_of).collect(),
        _ => invalid("GROUP BY takes paths: no ALL, ROLLUP, CUBE or GROUPING SETS"),
    }
}

/// SELECT DISTINCT is GROUP BY of all that is selected.
fn distinct_paths(query: &Query) -> Result<Vec<Path>> {
    refuse(&[(query.is_grouped(), "DISTINCT with GROUP BY or aggregates")])?;
    let Projection::Outputs(outputs) = &query.projection else {
        return invalid("DISTINCT * is not supported: name the paths");
    };
    let paths = outputs.iter().filter_map(|output| match &output.source {
        Source::Path(path) => Some(path.clone()),
        Source::Aggregate(_) => None,
    });
    Ok(paths.collect())
}

fn order_keys(order_by: Option<ast::OrderBy>) -> Result<Vec<ast::OrderByExpr>> {
    let Some(ast::OrderBy { kind, interpolate }) = order_by else { return Ok(Vec::new()) };
    refuse(&[(interpolate.is_some(), "INTERPOLATE")])?;
    match kind {
        ast::OrderByKind::Expressions(keys) => Ok(keys),
        ast::OrderByKind::All(_) => invalid("ORDER BY takes paths, not ALL"),
    }
}

fn orders(keys: Vec<ast::OrderByExpr>, mut resolve: impl FnMut(&ast::Expr) -> Result<Path>) -> Result<Vec<Order>> {
    let mut orders = Vec::new();
    for ast::OrderByExpr { expr, options, with_fill } in keys {
        refuse(&[(with_fill.is_some(), "WITH FILL")])?;
        let direction = if options.asc == Some(false) { Direction::Descending } else { Direction::Ascending };
        let first = options.nulls_first.unwrap_or(direction == Direction::Ascending);
        let nulls = if first { Nulls::First } else { Nulls::Last };
        orders.push(Order { path: resolve(&expr)?, direction, nulls });
    }
    Ok(orders)
}

fn window(clause: Option<ast::LimitClause>) -> Result<(Option<Amount>, Option<Amount>)> {
    let amount = |expr: ast::Expr| match condition::operand(&expr)? {
        Some(Operand::Parameter(number)) => Ok(Amount::Parameter(number)),
        Some(Operand::Literal(literal)) => match literal.get() {
            crate::value::ValueRef::I64(number) if number >= 0 => Ok(Amount::Number(number.unsigned_abs())),
            crate::value::ValueRef::U64(number) => Ok(Amount::Number(number)),
            _ => invalid(format!("LIMIT and OFFSET take an integer from 0, not {}", condition::name_of(&expr))),
        },
        None => invalid(format!("LIMIT and OFFSET take a number or a parameter, not {}", condition::name_of(&expr))),
    };
    match clause {
        None => Ok((None, None)),
        Some(ast::LimitClause::LimitOffset { limit, offset, limit_by }) => {
            refuse(&[(!limit_by.is_empty(), "LIMIT BY")])?;
            Ok((limit.map(amount).transpose()?, offset.map(|offset| amount(offset.value)).transpose()?))
        }
        Some(ast::LimitClause::OffsetCommaLimit { offset, limit }) => Ok((Some(amount(limit)?), Some(amount(offset)?))),
    }
}

/// The path that an expression is.
fn path_of(expr: &ast::Expr) -> Result<Path> {
    let step = |ident: &ast::Ident| match ident.quote_style {
        Some(token::ITEMS_QUOTE) => Step::Items,
        _ => Step::Name(ident.value.as_str().into()),
    };
    match expr {
        ast::Expr::Identifier(ident) => Path::of(vec![step(ident)]),
        ast::Expr::CompoundIdentifier(idents) => Path::of(idents.iter().map(step).collect()),
        ast::Expr::Nested(inner) => path_of(inner),
        // Some words (`user`) are functions without arguments to the parser.
        ast::Expr::Function(ast::Function { name, args: ast::FunctionArguments::None, .. }) => {
            match name.0.as_slice() {
                [part] if part.as_ident().is_some() => Path::of(part.as_ident().map(step).into_iter().collect()),
                _ => Err(condition::unsupported(expr)),
            }
        }
        _ => Err(condition::unsupported(expr)),
    }
}

/// The path that the name of an output stands for, or the path itself.
fn alias_of(projection: &Projection, path: Path) -> Path {
    let (Projection::Outputs(outputs), [Step::Name(name)]) = (projection, path.steps()) else { return path };
    let aliased = outputs.iter().find_map(|output| match &output.source {
        Source::Path(source) if output.name == **name => Some(source.clone()),
        _ => None,
    });
    aliased.unwrap_or(path)
}

/// The aggregate that an expression is, if it is a function.
fn aggregate_of(expr: &ast::Expr) -> Result<Option<Aggregate>> {
    let function = match expr {
        ast::Expr::Function(function) if function.args != ast::FunctionArguments::None => function,
        _ => return Ok(None),
    };
    let wrong = || {
        invalid(format!(
            "{} is not supported: aggregates are count(*), count(path), count(distinct path), sum, avg, min and max of a path",
            condition::name_of(expr)
        ))
    };
    let ast::Function {
        name,
        uses_odbc_syntax: false,
        parameters,
        args,
        filter: None,
        null_treatment: None,
        over: None,
        within_group,
    } = function
    else {
        return wrong();
    };
    let ast::FunctionArguments::List(ast::FunctionArgumentList { duplicate_treatment, args, clauses }) = args else {
        return wrong();
    };
    if *parameters != ast::FunctionArguments::None || !within_group.is_empty() || !clauses.is_empty() {
        return wrong();
    }
    let distinct = *duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
    let path = match args.as_slice() {
        [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard)] => None,
        [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr))] => Some(path_of(expr)?),
        _ => return wrong(),
    };
    let function = match (name.to_string().to_ascii_lowercase().as_str(), distinct, &path) {
        ("count", true, Some(_)) => Function::CountDistinct,
        ("count", false, _) => Function::Count,
        ("sum", false, Some(_)) => Function::Sum,
        ("avg", false, Some(_)) => Function::Avg,
        ("min", _, Some(_)) => Function::Min,
        ("max", _, Some(_)) => Function::Max,
        _ => return wrong(),
    };
    Ok(Some(Aggregate { function, path }))
}

/// What HAVING and ORDER BY of groups may name: outputs, grouped paths, and any aggregate.
struct Names<'q> {
    outputs: Vec<Output>,
    group_by: &'q [Path],
}

impl Names<'_> {
    fn check(&self) -> Result<()> {
        for output in &self.outputs {
            if let Source::Path(path) = &output.source
                && !self.group_by.contains(path)
            {
                return Err(not_grouped(path));
            }
        }
        Ok(())
    }

    /// The path into a group's outputs that an expression is.
    fn resolve(&mut self, expr: &ast::Expr) -> Result<Path> {
        if let Some(aggregate) = aggregate_of(expr)? {
            return Ok(self.output(aggregate.to_string(), Source::Aggregate(aggregate)));
        }
        let path = path_of(expr)?;
        if let [Step::Name(name)] = path.steps()
            && self.outputs.iter().any(|output| output.shown == Shown::Yes && output.name == **name)
        {
            return Ok(path);
        }
        if !self.group_by.contains(&path) {
            return Err(not_grouped(&path));
        }
        Ok(self.output(path.to_string(), Source::Path(path)))
    }

    /// The output that has this source, made where there is none.
    fn output(&mut self, mut name: String, source: Source) -> Path {
        if let Some(output) = self.outputs.iter().find(|output| output.source == source) {
            return Path::field(&output.name);
        }
        while self.outputs.iter().any(|output| output.name == name) {
            name.push('\'');
        }
        let path = Path::field(&name);
        self.outputs.push(Output { name, source, shown: Shown::No });
        path
    }
}

fn not_grouped(path: &Path) -> crate::error::Error {
    let text = format!("{path} is different within a group: add it to GROUP BY, or select an aggregate of it");
    crate::error::Error::Invalid { text }
}

#[cfg(test)]
mod tests;
