//! From text to a tree in which nothing is that cannot be evaluated.
//!
//! May use: `scan`, the parser. Must not know: series, points.

use promql_parser::parser::token::{T_LIMIT_RATIO, T_LIMITK};
use promql_parser::parser::{Call, Expr};

use crate::error::{Error, Result};
use crate::regexes::Regexes;

use super::{call, scan};

/// Parses an expression. `step_ms` is the window of functions that have none.
///
/// # Errors
/// `Invalid` when it is none, or when it asks for something that is not there: the text names it.
pub(crate) fn parse(text: &str, step_ms: i64, regexes: &mut Regexes) -> Result<Expr> {
    let text = scan::prepare(text, step_ms, regexes)?;
    let parsed = promql_parser::parser::parse(&text);
    let expr = parsed.map_err(|reason| Error::invalid(format!("cannot parse the expression: {reason}")))?;
    check(&expr)?;
    Ok(expr)
}

fn unsupported(what: &str) -> Error {
    Error::invalid(format!("{what} is not supported"))
}

fn check(expr: &Expr) -> Result<()> {
    match expr {
        Expr::Aggregate(aggregate) => {
            if [T_LIMITK, T_LIMIT_RATIO].contains(&aggregate.op.id()) {
                return Err(unsupported(&format!("the aggregation {}", aggregate.op)));
            }
            aggregate.param.iter().try_for_each(|param| check(param))?;
            check(&aggregate.expr)
        }
        Expr::Unary(unary) => check(&unary.expr),
        Expr::Binary(binary) => {
            let fill = binary.modifier.as_ref().map(|modifier| &modifier.fill_values);
            if fill.is_some_and(|fill| fill.lhs.is_some() || fill.rhs.is_some()) {
                return Err(unsupported("fill in a binary operation"));
            }
            check(&binary.lhs)?;
            check(&binary.rhs)
        }
        Expr::Paren(paren) => check(&paren.expr),
        Expr::Subquery(subquery) => check(&subquery.expr),
        Expr::Call(Call { func, args }) => {
            if !call::is_known(func.name) {
                return Err(unsupported(&format!("the function {}", func.name)));
            }
            args.args.iter().try_for_each(|arg| check(arg))
        }
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::VectorSelector(_) | Expr::MatrixSelector(_) => Ok(()),
        Expr::Extension(_) => Err(unsupported("this")),
    }
}
