//! OpenTSDB's questions over HTTP.
