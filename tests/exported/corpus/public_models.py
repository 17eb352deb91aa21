"""Small forms of public models, with random weights: the families of scripts/corpus that come from PyPI.

Each entry is a name and a function that returns the model and its inputs: a tuple, or a dict of keyword arguments."""
import functools

import torch

IMAGE = 64
TOKENS = 100
LENGTH = 8


def images(size=IMAGE, *between):
    return (torch.randn(2, 3, *between, size, size),)


def words(tokens=TOKENS):
    return torch.randint(4, tokens, (2, LENGTH))


# torchvision

def torchvision_models():
    import torchvision.models as m
    small = {"num_classes": 10}

    def plain(function, size=IMAGE, **arguments):
        return lambda: (function(weights=None, **small, **arguments), images(size))

    def made(make, *inputs):
        return lambda: (make(), images(*inputs))

    networks = {name: plain(getattr(m, name)) for name in (
        "resnet18", "resnext50_32x4d", "squeezenet1_0", "squeezenet1_1", "densenet121", "mobilenet_v2", "mobilenet_v3_small",
        "mobilenet_v3_large", "shufflenet_v2_x0_5", "mnasnet0_5", "efficientnet_b0", "regnet_x_400mf", "regnet_y_400mf")}
    networks["alexnet"] = plain(m.alexnet)
    networks["googlenet"] = plain(m.googlenet, init_weights=False, aux_logits=True)
    networks["convnext, narrow"] = made(lambda: m.ConvNeXt(
        [m.convnext.CNBlockConfig(16, 32, 1), m.convnext.CNBlockConfig(32, None, 1)], 0.1, **small))
    networks["vit"] = made(lambda: m.VisionTransformer(IMAGE, 16, 2, 3, 48, 96, 0.1, 0.1, **small))
    for name, block in (("swin", m.swin_transformer.SwinTransformerBlock), ("swin_v2", m.swin_transformer.SwinTransformerBlockV2)):
        merging = m.swin_transformer.PatchMergingV2 if name == "swin_v2" else m.swin_transformer.PatchMerging
        networks[name] = made(lambda block=block, merging=merging: m.SwinTransformer(
            [4, 4], 24, [2, 1], [2, 4], [4, 4], stochastic_depth_prob=0.2, block=block, downsample_layer=merging, **small))
    networks["maxvit"] = made(lambda: m.MaxVit((IMAGE, IMAGE), 16, 4, [16, 32], [1, 1], 8, 0.1, **small))
    others = {
        "lraspp_mobilenet_v3_large": lambda: (m.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5), images()),
        "deeplabv3_mobilenet_v3_large": lambda: (m.segmentation.deeplabv3_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=5), images()),
        "r2plus1d, shallow": lambda: (m.video.VideoResNet(m.video.resnet.BasicBlock, [m.video.resnet.Conv2Plus1D] * 4,
                                                          [1, 1, 1, 1], m.video.resnet.R2Plus1dStem, **small), images(32, 4)),
    }
    return {"torchvision, classification": networks, "torchvision, segmentation and video": others}


# timm

VIT = {"img_size": IMAGE, "depth": 2, "embed_dim": 48, "num_heads": 3}
TIMM_CONVOLUTIONS = {name: {} for name in (
    "test_byobnet", "test_convnext", "test_convnext3", "test_efficientnet", "test_efficientnet_evos", "test_mambaout", "test_nfnet",
    "test_resnet", "resnet10t", "seresnext26ts", "skresnet18", "regnetx_002", "regnety_002", "mobilenetv3_small_050",
    "mobilenetv4_conv_small_035", "lcnet_050", "tinynet_e", "ghostnet_050", "repghostnet_050", "mobileone_s0", "dla46_c",
    "convnext_atto", "convnextv2_atto", "ese_vovnet19b_slim_dw", "starnet_s1", "inception_next_atto", "repvit_m0_9", "shvit_s1")}
TIMM_ATTENTION = {
    "test_vit": {}, "test_vit_relpos": {"img_size": IMAGE}, "test_maxvit": {"img_size": IMAGE}, "test_coatnet": {"img_size": IMAGE},
    "vit_tiny_patch16_224": {**VIT, "drop_path_rate": 0.2}, "deit_tiny_distilled_patch16_224": VIT, "beit_base_patch16_224": VIT,
    "eva02_tiny_patch14_224": {**VIT, "img_size": 56},
    "swin_tiny_patch4_window7_224": {"img_size": IMAGE, "window_size": 4, "embed_dim": 24, "depths": (1, 1), "num_heads": (2, 4)},
    "swinv2_tiny_window8_256": {"img_size": IMAGE, "window_size": 4, "embed_dim": 24, "depths": (1, 2), "num_heads": (2, 4)},
    "mixer_s32_224": {"img_size": IMAGE}, "gmlp_ti16_224": {"img_size": IMAGE},
    "resmlp_12_224": {"img_size": IMAGE}, "cait_xxs24_224": {**VIT, "depth_token_only": 1},
    "xcit_nano_12_p16_224": VIT, "pit_ti_224": {"img_size": IMAGE}, "visformer_tiny": {"img_size": IMAGE},
    "convit_tiny": {**VIT, "local_up_to_layer": 1}, "levit_128s": {"img_size": IMAGE}, "efficientvit_b0": {}, "efficientvit_m0": {"img_size": IMAGE},
    "mobilevit_xxs": {}, "mobilevitv2_050": {}, "edgenext_xx_small": {}, "pvt_v2_b0": {},
    "hiera_tiny_224": {"img_size": IMAGE, "embed_dim": 24, "stages": (1, 1, 1, 1)},
    "sequencer2d_s": {"img_size": IMAGE, "layers": (1, 1), "embed_dims": (24, 48), "patch_sizes": (4, 2), "hidden_sizes": (12, 24), "mlp_ratios": (2, 2)},
}


def timm_models():
    import timm

    def model(name, arguments):
        return lambda: (timm.create_model(name, num_classes=10, **arguments), images(arguments.get("img_size", IMAGE)))

    return {family: {name: model(name, arguments) for name, arguments in names.items()}
            for family, names in (("timm, convolutions", TIMM_CONVOLUTIONS), ("timm, attention and MLPs", TIMM_ATTENTION))}


# transformers

DECODERS = (
    "gpt2 gpt_neo gpt_neox gptj gpt_bigcode openai-gpt opt bloom llama mistral mixtral qwen2 qwen3 qwen2_moe gemma gemma2 gemma3_text "
    "phi phi3 falcon mpt codegen stablelm starcoder2 olmo olmo2 cohere granite helium glm nemotron persimmon biogpt xglm ctrl mamba "
    "mamba2 rwkv recurrent_gemma smollm3 gpt_oss").split()
ENCODERS = (
    "bert roberta albert electra distilbert deberta deberta-v2 mpnet fnet squeezebert convbert mobilebert roformer rembert esm "
    "nystromformer megatron-bert layoutlm modernbert funnel xlm xlnet longformer ibert canine").split()
SEQUENCES = "t5 mt5 umt5 bart mbart pegasus marian m2m_100 blenderbot plbart longt5 switch_transformers led prophetnet".split()
SIZES = {"vocab_size": TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
         "max_position_embeddings": 64, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SEQUENCE_SIZES = {
    **{key: value for key, value in SIZES.items() if not key.startswith(("hidden", "num_hidden", "num_att", "inter"))},
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "decoder_start_token_id": 1}
T5_SIZES = {"vocab_size": TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "use_cache": False,
            "decoder_start_token_id": 0}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
           "shared_expert_intermediate_size": 32}
EXTRA = {
    "llama": {"num_key_value_heads": 2}, "mistral": {"num_key_value_heads": 2}, "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8}, "mixtral": {"num_key_value_heads": 2, **EXPERTS},
    "qwen2_moe": {"num_key_value_heads": 2, **EXPERTS}, "gemma": {"head_dim": 8, "num_key_value_heads": 2},
    "gemma2": {"head_dim": 8, "num_key_value_heads": 2}, "gemma3_text": {"head_dim": 8, "num_key_value_heads": 2},
    "gpt_oss": {"head_dim": 8, "num_key_value_heads": 2, **EXPERTS}, "phi3": {"num_key_value_heads": 2}, "gptj": {"rotary_dim": 4},
    "gpt_neo": {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 4},
    "codegen": {"rotary_dim": 4}, "stablelm": {"num_key_value_heads": 2}, "starcoder2": {"num_key_value_heads": 2},
    "cohere": {"num_key_value_heads": 2}, "granite": {"num_key_value_heads": 2}, "helium": {"head_dim": 8, "num_key_value_heads": 2},
    "glm": {"head_dim": 8, "num_key_value_heads": 2}, "nemotron": {"num_key_value_heads": 2}, "smollm3": {"num_key_value_heads": 2},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32}, "xglm": {"d_model": 32, "ffn_dim": 64, "num_layers": 2, "attention_heads": 4},
    "ctrl": {"dff": 64}, "mamba": {"state_size": 4}, "mamba2": {"state_size": 4, "head_dim": 8, "num_heads": 8, "n_groups": 2, "chunk_size": 4},
    "rwkv": {"attention_hidden_size": 32}, "recurrent_gemma": {"num_key_value_heads": 1, "lru_width": 32, "attention_window_size": 8},
    "albert": {"embedding_size": 16}, "electra": {"embedding_size": 16}, "convbert": {"embedding_size": 32},
    "mobilebert": {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16}, "roformer": {"embedding_size": 32},
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 16}, "deberta-v2": {"relative_attention": True},
    "esm": {"position_embedding_type": "rotary", "emb_layer_norm_before": True}, "nystromformer": {"segment_means_seq_len": LENGTH, "num_landmarks": 4},
    "modernbert": {"cls_token_id": 1, "sep_token_id": 2}, "funnel": {"num_hidden_layers": None, "d_model": 32, "block_sizes": [1, 1], "n_head": 4, "d_head": 8, "d_inner": 64},
    "xlm": {"emb_dim": 32, "n_layers": 2, "n_heads": 4}, "xlnet": {"d_inner": 64, "max_position_embeddings": None}, "longformer": {"attention_window": 4},
    "canine": {"num_hash_buckets": 64}, "squeezebert": {"embedding_size": 32},
    "led": {"max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64, "attention_window": 4},
    "prophetnet": {"num_hidden_layers": None, "encoder_layers": None, "decoder_layers": None, "hidden_size": 32, "num_encoder_layers": 2, "num_decoder_layers": 2, "num_encoder_attention_heads": 4,
                   "num_decoder_attention_heads": 4},
    "longt5": {"local_radius": 3}, "switch_transformers": {"num_experts": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
}


@functools.lru_cache(maxsize=None)
def without_vmap():
    """The library's masks are made by vmap, which torch.export cannot save; it brings others for that."""
    from transformers import masking_utils
    from transformers.integrations.executorch import sdpa_mask_without_vmap
    masking_utils.ALL_MASK_ATTENTION_FUNCTIONS.register("sdpa", sdpa_mask_without_vmap)
    masking_utils.sdpa_mask = sdpa_mask_without_vmap  # of eager_mask()


def transformer(auto, kind, sizes):
    import transformers
    without_vmap()
    sizes = {key: value for key, value in {**sizes, **EXTRA.get(kind, {})}.items() if value is not None}
    config = transformers.AutoConfig.for_model(kind, **sizes)
    return getattr(transformers, auto).from_config(config)


def text(auto, kind, inputs, sizes):
    return lambda: (transformer(auto, kind, sizes), {name: words() for name in inputs})


def vision(kind, size=IMAGE, **sizes):
    return lambda: (transformer("AutoModelForImageClassification", kind, {"image_size": size, "num_labels": 10, **sizes}),
                    {"pixel_values": images(size)[0]})


ENCODER = {key: SIZES[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}
STAGES = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4}
OTHERS = {
    **{kind: vision(kind, patch_size=16, **ENCODER) for kind in ("vit", "dinov2", "beit", "vit_msn", "ijepa")},
    **{kind: vision(kind, **STAGES) for kind in ("swin", "swinv2")},
    "resnet": vision("resnet", embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1]),
    "regnet": vision("regnet", embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], groups_width=8),
    "convnext": vision("convnext", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
    "convnextv2": vision("convnextv2", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
    "segformer": vision("segformer", hidden_sizes=[8, 16, 16, 32], decoder_hidden_size=16, depths=[1, 1, 1, 1],
                        num_attention_heads=[1, 2, 2, 4]),
    "poolformer": vision("poolformer", hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1]),
    "mobilenet_v2": vision("mobilenet_v2", depth_multiplier=0.25),
    "mobilevit": vision("mobilevit"),
    "wav2vec2": lambda: (transformer("AutoModel", "wav2vec2", {**ENCODER, "conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 4),
                                     "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
                                     "mask_time_prob": 0.0, "layerdrop": 0.0}), {"input_values": torch.randn(2, 400)}),
    "hubert": lambda: (transformer("AutoModel", "hubert", {**ENCODER, "conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 4),
                                   "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
                                   "mask_time_prob": 0.0, "layerdrop": 0.0}), {"input_values": torch.randn(2, 400)}),
    "audio-spectrogram-transformer": lambda: (transformer("AutoModel", "audio-spectrogram-transformer", {
        **ENCODER, "max_length": 64, "num_mel_bins": 32}), {"input_values": torch.randn(2, 64, 32)}),
    "clip": lambda: (transformer("AutoModel", "clip", {
        "text_config": {**SIZES}, "vision_config": {**ENCODER, "image_size": IMAGE, "patch_size": 16}, "projection_dim": 16}),
        {"input_ids": words(), "pixel_values": images()[0]}),
    "whisper": lambda: (transformer("AutoModel", "whisper", {**SEQUENCE_SIZES, "num_mel_bins": 8, "max_source_positions": 16,
                                                             "max_target_positions": 16}),
                        {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": words()}),
}


def transformers_models():
    both = ("input_ids", "decoder_input_ids")
    t5s = ("t5", "mt5", "umt5", "longt5", "switch_transformers")
    return {
        "transformers, decoders": {kind: text("AutoModelForCausalLM", kind, ("input_ids",), SIZES) for kind in DECODERS},
        "transformers, encoders": {kind: text("AutoModel", kind, ("input_ids",), SIZES) for kind in ENCODERS},
        "transformers, encoder-decoders": {kind: text("AutoModelForSeq2SeqLM", kind, both, T5_SIZES if kind in t5s else SEQUENCE_SIZES)
                                           for kind in SEQUENCES},
        "transformers, images and sound": OTHERS,
    }


PACKAGES = {"transformers": transformers_models, "timm": timm_models, "torchvision": torchvision_models}


@functools.lru_cache(maxsize=None)
def families():
    return {family: models for make in PACKAGES.values() for family, models in make().items()}
