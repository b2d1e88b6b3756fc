//! Raw FFI of fullbore, no policy.
