//! Apache Parquet, by its own crate: a row group for each batch, columns compressed with snappy, names and texts by dictionary.
//!
//! May use: `columns`, the crate `parquet`. Must not know: where it is written to.

use std::io::{self, Write};
use std::sync::Arc;

use holdfast::series::{Kind, ValueRef};
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::columns::{Batch, Exported, Names};
use crate::failure::Failure;

fn failed(error: ParquetError) -> Failure {
    Failure::Export(io::Error::other(error))
}

fn column(
    name: &str,
    repetition: Repetition,
    physical: Physical,
    logical: Option<LogicalType>,
) -> Result<TypePtr, Failure> {
    let column = Type::primitive_type_builder(name, physical).with_repetition(repetition).with_logical_type(logical);
    column.build().map(Arc::new).map_err(failed)
}

fn schema(exported: &Exported<'_>) -> Result<TypePtr, Failure> {
    let time = LogicalType::timestamp(true, TimeUnit::NANOS);
    let text = |name: &str, repetition| column(name, repetition, Physical::BYTE_ARRAY, Some(LogicalType::String));
    let mut columns = vec![column("time", Repetition::REQUIRED, Physical::INT64, Some(time))?];
    let (fixed, tags) = exported.names.split_at(exported.names.len().min(2));
    for names in fixed {
        columns.push(text(&names.column, Repetition::REQUIRED)?);
    }
    let repetition = if exported.kinds.len() > 1 { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    for kind in &exported.kinds {
        let name = exported.column(*kind);
        let unsigned = LogicalType::integer(64, false);
        columns.push(match kind {
            Kind::Float => column(&name, repetition, Physical::DOUBLE, None)?,
            Kind::Integer => column(&name, repetition, Physical::INT64, None)?,
            Kind::Unsigned => column(&name, repetition, Physical::INT64, Some(unsigned))?,
            Kind::Boolean => column(&name, repetition, Physical::BOOLEAN, None)?,
            Kind::Text => text(&name, repetition)?,
        });
    }
    for names in tags {
        columns.push(text(&names.column, Repetition::OPTIONAL)?);
    }
    Type::group_type_builder("points").with_fields(columns).build().map(Arc::new).map_err(failed)
}

/// Writes everything.
pub(crate) fn write(exported: &Exported<'_>, to: &mut (impl Write + Send)) -> Result<(), Failure> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    let properties = Arc::new(properties.set_created_by("holdfast".to_owned()).build());
    let mut writer = SerializedFileWriter::new(to, schema(exported)?, properties).map_err(failed)?;
    exported.each(&mut |batch| {
        let mut group = writer.next_row_group().map_err(failed)?;
        rows(exported, batch, &mut group)?;
        group.close().map(|_| ()).map_err(failed)
    })?;
    writer.close().map(|_| ()).map_err(failed)
}

/// Writes the next column. `None` is a row without a value, of which a column that has to have values has none.
fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    is_optional: bool,
    rows: impl Iterator<Item = Option<T::T>>,
) -> Result<(), Failure> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for row in rows {
        levels.push(i16::from(row.is_some()));
        values.extend(row);
    }
    let missing = || failed(ParquetError::General("there are more columns than in the schema".to_owned()));
    let mut column = group.next_column().map_err(failed)?.ok_or_else(missing)?;
    let levels = is_optional.then_some(levels.as_slice());
    column.typed::<T>().write_batch(&values, levels, None).map_err(failed)?;
    column.close().map_err(failed)
}

fn rows(
    exported: &Exported<'_>,
    batch: &Batch,
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
) -> Result<(), Failure> {
    put::<Int64Type>(group, false, batch.points.times().iter().map(|time| Some(*time)))?;
    let (fixed, tags) = exported.names.split_at(exported.names.len().min(2));
    let texts =
        |names: &Names<'_>| -> Vec<ByteArray> { names.texts.iter().map(|text| ByteArray::from(*text)).collect() };
    for names in fixed {
        let texts = texts(names);
        let empty = ByteArray::from("");
        let row = |code: Option<usize>| Some(code.and_then(|code| texts.get(code)).unwrap_or(&empty).clone());
        put::<ByteArrayType>(group, false, names.rows(batch).map(row))?;
    }
    let is_optional = exported.kinds.len() > 1;
    for kind in &exported.kinds {
        let values = batch.values(*kind);
        match kind {
            Kind::Float => put::<DoubleType>(group, is_optional, values.map(|value| value?.number()))?,
            Kind::Boolean => {
                put::<BoolType>(group, is_optional, values.map(|value| Some(value? == ValueRef::Boolean(true))))?;
            }
            Kind::Text => {
                let text = |value: Option<ValueRef<'_>>| match value? {
                    ValueRef::Text(text) => Some(ByteArray::from(text)),
                    _ => None,
                };
                put::<ByteArrayType>(group, is_optional, values.map(text))?;
            }
            Kind::Integer | Kind::Unsigned => {
                let bits = values.zip(batch.points.bits()).map(|(value, bits)| value.map(|_| bits.cast_signed()));
                put::<Int64Type>(group, is_optional, bits)?;
            }
        }
    }
    for names in tags {
        let texts = texts(names);
        put::<ByteArrayType>(group, true, names.rows(batch).map(|code| texts.get(code?).cloned()))?;
    }
    Ok(())
}
