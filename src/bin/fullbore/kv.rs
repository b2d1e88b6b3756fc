//! How large a KV cache is: objects and their bytes, by a model's geometry.
//!
//! Engines keep keys and values by chunks of tokens; a chunk of all layers, as one rank of a tensor-parallel group has it, is an
//! object in storage. Grouped-query attention deals its KV heads over the ranks; multi-head latent attention keeps one latent
//! vector a token and layer, which every rank holds whole.

/// What a token leaves behind in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// A key and a value of each KV head.
    Grouped { kv_heads: u64, head_size: u64 },
    /// One latent vector with so many elements (kv_lora_rank + qk_rope_head_dim).
    Latent { elements: u64 },
}

/// What decides how large a model's cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    pub name: &'static str,
    pub layers: u64,
    pub attention: Attention,
}

const fn grouped(name: &'static str, layers: u64, kv_heads: u64, head_size: u64) -> Model {
    Model { name, layers, attention: Attention::Grouped { kv_heads, head_size } }
}

const fn latent(name: &'static str, layers: u64, elements: u64) -> Model {
    Model { name, layers, attention: Attention::Latent { elements } }
}

/// Common models. Source: the `config.json` that each is published with (num_hidden_layers, num_key_value_heads, and head_dim or
/// hidden_size / num_attention_heads; kv_lora_rank and qk_rope_head_dim).
pub const MODELS: &[Model] = &[
    grouped("llama-2-7b", 32, 32, 128),
    grouped("llama-2-13b", 40, 40, 128),
    grouped("llama-2-70b", 80, 8, 128),
    grouped("llama-3-8b", 32, 8, 128),
    grouped("llama-3-70b", 80, 8, 128),
    grouped("llama-3.1-8b", 32, 8, 128),
    grouped("llama-3.1-70b", 80, 8, 128),
    grouped("llama-3.1-405b", 126, 8, 128),
    grouped("llama-3.2-1b", 16, 8, 64),
    grouped("llama-3.2-3b", 28, 8, 128),
    grouped("llama-3.3-70b", 80, 8, 128),
    grouped("mistral-7b", 32, 8, 128),
    grouped("mistral-nemo-12b", 40, 8, 128),
    grouped("mistral-small-24b", 40, 8, 128),
    grouped("mixtral-8x7b", 32, 8, 128),
    grouped("mixtral-8x22b", 56, 8, 128),
    grouped("qwen2.5-7b", 28, 4, 128),
    grouped("qwen2.5-14b", 48, 8, 128),
    grouped("qwen2.5-32b", 64, 8, 128),
    grouped("qwen2.5-72b", 80, 8, 128),
    grouped("qwen3-8b", 36, 8, 128),
    grouped("qwen3-14b", 40, 8, 128),
    grouped("qwen3-32b", 64, 8, 128),
    grouped("qwen3-30b-a3b", 48, 4, 128),
    grouped("qwen3-235b-a22b", 94, 4, 128),
    latent("deepseek-v2-lite", 27, 512 + 64),
    latent("deepseek-v2", 60, 512 + 64),
    latent("deepseek-v3", 61, 512 + 64),
    latent("deepseek-r1", 61, 512 + 64),
    latent("kimi-k2", 61, 512 + 64),
];

/// The objects of a sequence of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a chunk as one rank has it.
    pub object: u64,
    /// Chunks of the sequence, the last one whole too.
    pub objects: u64,
    /// Bytes of a chunk on all ranks together: in the latent form it grows with them.
    pub chunk: u64,
}

impl Layout {
    /// Bytes that one rank loads.
    pub fn of_rank(&self) -> u64 {
        self.object * self.objects
    }

    /// Bytes that all ranks load.
    pub fn of_all(&self) -> u64 {
        self.chunk * self.objects
    }
}

impl Model {
    pub fn named(name: &str) -> Result<Self, String> {
        let found = MODELS.iter().find(|model| model.name.eq_ignore_ascii_case(name)).copied();
        found.ok_or_else(|| {
            let names: Vec<_> = MODELS.iter().map(|model| model.name).collect();
            format!("`{name}` is none of {}: give others by --layers, --kv_heads and --head_size, or --layers and --latent", names.join(", "))
        })
    }

    /// The objects of so many tokens in chunks of so many, over `tp` ranks, with so many bytes an element.
    pub fn layout(&self, tp: u64, tokens: u64, chunk_tokens: u64, element: u64) -> Result<Layout, String> {
        if [tp, tokens, chunk_tokens, element, self.layers].contains(&0) {
            return Err("a model, its ranks and its tokens count from 1: raise what is 0".into());
        }
        let a_layer = match self.attention {
            Attention::Latent { elements } => elements,
            Attention::Grouped { kv_heads, head_size } => {
                // With more ranks than heads, some ranks hold the same head.
                let heads = if tp >= kv_heads { 1 } else { kv_heads / tp };
                let uneven =
                    if tp >= kv_heads { !tp.is_multiple_of(kv_heads) } else { !kv_heads.is_multiple_of(tp) };
                if kv_heads == 0 || uneven {
                    return Err(format!(
                        "{kv_heads} KV heads do not divide over --tp={tp}: give 1, {kv_heads} or what divides it"
                    ));
                }
                2 * heads * head_size
            }
        };
        let bytes =
            [self.layers, element, chunk_tokens].iter().try_fold(a_layer, |bytes, n| bytes.checked_mul(*n));
        let chunk = bytes.and_then(|object| object.checked_mul(tp));
        let objects = tokens.div_ceil(chunk_tokens);
        match (bytes.filter(|&object| object > 0), chunk) {
            (Some(object), Some(chunk)) if chunk.checked_mul(objects).is_some() => {
                Ok(Layout { object, objects, chunk })
            }
            _ => {
                Err("the cache of this model has no bytes, or more than 64 bits count: check its numbers"
                    .into())
            }
        }
    }
}

/// Bytes of an element.
pub fn element(dtype: &str) -> Result<u64, String> {
    match dtype {
        "fp32" | "float32" => Ok(4),
        "bf16" | "fp16" | "bfloat16" | "float16" => Ok(2),
        "fp8" | "int8" => Ok(1),
        _ => Err(format!("`{dtype}` is none of bf16, fp16, fp8, int8, fp32")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, tp: u64) -> u64 {
        Model::named(name).unwrap().layout(tp, 32 << 10, 256, 2).unwrap().object
    }

    #[test]
    fn chunks_of_llama_are_as_large_as_they_are_known_to_be() {
        const MIB: u64 = 1 << 20;
        assert_eq!((object("llama-3.1-8b", 1), object("llama-3.1-8b", 4)), (32 * MIB, 8 * MIB));
        assert_eq!((object("Llama-3.1-70B", 1), object("llama-3.1-70b", 4)), (80 * MIB, 20 * MIB));
        let layout = Model::named("llama-3.1-8b").unwrap().layout(4, 32 << 10, 256, 2).unwrap();
        assert_eq!(layout, Layout { object: 8 * MIB, objects: 128, chunk: 32 * MIB });
        assert_eq!((layout.of_rank(), layout.of_all()), (1 << 30, 4 << 30));
    }

    #[test]
    fn latent_caches_are_on_every_rank() {
        let of = |tp| Model::named("deepseek-v3").unwrap().layout(tp, 1000, 256, 2).unwrap();
        assert_eq!((of(1).object, of(8).object), (576 * 61 * 2 * 256, 576 * 61 * 2 * 256));
        assert_eq!((of(8).chunk, of(1).objects), (8 * of(1).chunk, 4));
    }

    #[test]
    fn heads_are_dealt_whole_and_doubled_where_ranks_are_more() {
        let of = |tp| Model::named("qwen2.5-7b").unwrap().layout(tp, 256, 256, 1);
        let one = of(1).unwrap();
        assert_eq!((of(4).unwrap().object * 4, of(4).unwrap().chunk), (one.object, one.chunk));
        assert_eq!((of(8).unwrap().object, of(8).unwrap().chunk), (one.object / 4, 2 * one.chunk));
        for tp in [0, 3, 6] {
            assert!(of(tp).is_err(), "{tp}");
        }
        assert!(Model { layers: u64::MAX, ..MODELS[0] }.layout(1, 256, 256, 2).is_err());
        assert!(
            MODELS[0].layout(1, 0, 256, 2).is_err()
                && Model::named("gpt-9").unwrap_err().contains("--layers")
        );
    }

    #[test]
    fn elements_have_bytes() {
        assert_eq!((element("bf16"), element("fp8"), element("fp32")), (Ok(2), Ok(1), Ok(4)));
        assert!(element("int3").is_err());
    }
}
