//! Examples of the embedded library: see the files beside this folder.
