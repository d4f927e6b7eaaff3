//! Properties of PromQL against a slow model.
