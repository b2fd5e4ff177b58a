"""Layers that nobody here wrote, from `transformers`, at small widths, with their inputs."""

import torch
from transformers import (
    DeepseekV3Config,
    DiffLlamaConfig,
    GemmaConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    Qwen3Config,
    ViTConfig,
)
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.diffllama import modeling_diffllama as diffllama
from transformers.models.gemma import modeling_gemma as gemma
from transformers.models.gpt_oss import modeling_gpt_oss as gpt_oss
from transformers.models.llama import modeling_llama as llama
from transformers.models.mistral import modeling_mistral as mistral
from transformers.models.qwen3 import modeling_qwen3 as qwen3
from transformers.models.vit import modeling_vit as vit

BATCH, LENGTH, WIDTH = 2, 10, 32


class Decoder(torch.nn.Module):
    """A decoder layer with its rotary embedding: hidden states and a mask in, hidden states out."""

    def __init__(self, layer, rotary):
        super().__init__()
        self.layer, self.rotary = layer, rotary

    def forward(self, x, mask=None):
        positions = torch.arange(x.shape[1])[None]
        out = self.layer(
            x,
            attention_mask=mask,
            position_ids=positions,
            position_embeddings=self.rotary(x, positions),
            use_cache=False,
        )
        return out[0] if isinstance(out, tuple) else out


SMALL = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "vocab_size": 64,
    "max_position_embeddings": 64,
}


def decoder(config, layer, rotary, **more):
    def build(attention="sdpa"):
        torch.manual_seed(0)
        settings = config(**{**SMALL, **more}, attn_implementation=attention)
        settings._experts_implementation = "batched_mm"  # the default loops over data, which cannot be exported
        module = Decoder(layer(settings, layer_idx=0), rotary(settings)).eval()
        for p in module.parameters():  # some are left as they are allocated
            torch.nn.init.normal_(p, std=0.2)
        return module

    return build


def image_block(attention="sdpa"):
    torch.manual_seed(0)
    settings = ViTConfig(
        hidden_size=WIDTH,
        intermediate_size=48,
        num_attention_heads=4,
        num_hidden_layers=1,
        attn_implementation=attention,
    )

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = vit.ViTLayer(settings)

        def forward(self, x):
            out = self.layer(x)
            return out[0] if isinstance(out, tuple) else out

    return Block().eval()


LAYERS = {
    "llama": decoder(LlamaConfig, llama.LlamaDecoderLayer, llama.LlamaRotaryEmbedding),
    "qwen3": decoder(Qwen3Config, qwen3.Qwen3DecoderLayer, qwen3.Qwen3RotaryEmbedding),
    "mistral": decoder(MistralConfig, mistral.MistralDecoderLayer, mistral.MistralRotaryEmbedding, sliding_window=4),
    "gemma": decoder(GemmaConfig, gemma.GemmaDecoderLayer, gemma.GemmaRotaryEmbedding),
    "diffllama": decoder(DiffLlamaConfig, diffllama.DiffLlamaDecoderLayer, diffllama.DiffLlamaRotaryEmbedding),
    "deepseek_v3": decoder(
        DeepseekV3Config,
        deepseek.DeepseekV3DecoderLayer,
        deepseek.DeepseekV3RotaryEmbedding,
        num_key_value_heads=4,
        head_dim=None,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        first_k_dense_replace=1,
        n_routed_experts=4,
        moe_intermediate_size=16,
    ),
    "deepseek_v3_experts": decoder(
        DeepseekV3Config,
        deepseek.DeepseekV3DecoderLayer,
        deepseek.DeepseekV3RotaryEmbedding,
        num_key_value_heads=4,
        head_dim=None,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        first_k_dense_replace=0,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        moe_intermediate_size=16,
    ),
    "gpt_oss": decoder(
        GptOssConfig,
        gpt_oss.GptOssDecoderLayer,
        gpt_oss.GptOssRotaryEmbedding,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=4,
    ),
    "vit": image_block,
}
