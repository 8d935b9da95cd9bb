//! Exact draws from keyed streams.

pub mod bounded;
pub mod distances;
pub mod exp;
pub mod extremes;
pub mod gaussian;
pub mod groups;
pub mod kept;
pub mod lanes;
pub mod laplace;
pub mod latents;
pub mod mixture;
pub mod near;
pub mod occurrences;
pub mod outline;
pub mod radial;
pub mod sampler;
pub mod scores;
pub mod stream;
pub mod uniforms;
pub mod weights;
