"""The exact list of globals that a checkpoint may name, by module. A name that is not here is refused.

Collected from what torch.save writes for state dicts, optimizers, schedulers and scalers, and from checkpoints of
Lightning, transformers, Accelerate, PEFT, mmengine and OmegaConf. No entry runs code that its arguments choose, and
nothing that may be kept as a value is harmful when library code calls it by mistake, with any arguments.
"""

from __future__ import annotations

from rung_inside.verify.pickles.storages import STORAGES
from rung_inside.verify.stored.tensor import ITEM_BYTES

_NUMPY_TYPES = (
    "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 intc uintc longlong ulonglong float16 float32 float64"
    " longdouble complex64 complex128 str_ bytes_ ndarray"
)
_NUMPY_DTYPES = (
    "BoolDType Int8DType Int16DType Int32DType Int64DType UInt8DType UInt16DType UInt32DType UInt64DType"
    " Float16DType Float32DType Float64DType LongDoubleDType Complex64DType Complex128DType StrDType BytesDType"
    " ObjectDType VoidDType DateTime64DType TimeDelta64DType"
)
_STORAGES = " ".join((*STORAGES, "TypedStorage", "_TypedStorage"))
_ATTRIBUTES = "AttributeDict"
_OPTIMIZERS = "adadelta adagrad adam adamax adamw asgd lbfgs nadam radam rmsprop rprop sgd sparse_adam"

# Values: they are named and kept, and never called.
VALUES = {
    "torch": " ".join(
        (
            *ITEM_BYTES,
            *(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)),
            *("float", "double", "half", "long", "int", "short", "cfloat", "cdouble", "bits8", "bits16"),
            *("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"),
            *("contiguous_format", "channels_last", "channels_last_3d", "preserve_format"),
            *("per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric"),
            "per_channel_affine_float_qparams",
        )
    ),
    "torch.nn.functional": "relu gelu silu tanh sigmoid leaky_relu elu softmax log_softmax cross_entropy mse_loss",
    "numpy": _NUMPY_TYPES,
    "typing": "Any Dict List Tuple Set Optional Union",
}

# Classes that frameworks also keep as values, such as the optimizer of a config, besides making objects of them.
ALSO_VALUES = {
    "builtins": "object int float str bool list dict tuple set frozenset bytes",
    **dict.fromkeys(
        ("torch.nn.modules.activation", "torch.nn.modules.batchnorm", "torch.nn.modules.normalization"), ""
    ),
    **{f"torch.optim.{name}": "" for name in _OPTIMIZERS.split()},
}

# These stand in one place only: the type of a storage or of a tensor, or what makes new values for a dict.
NAMED = {
    "torch": f"{_STORAGES} Tensor",
    "torch.storage": _STORAGES,
    "torch.cuda": _STORAGES,
    "torch.amp.grad_scaler": "_refresh_per_optimizer_state",
    "torch.cuda.amp.grad_scaler": "_refresh_per_optimizer_state",
    "torch.distributed._tensor.api": "DTensor",
    "torch.distributed.tensor": "DTensor",
    "torch.distributed.tensor._api": "DTensor",
    "numpy.random._mt19937": "MT19937",
    "numpy.random._pcg64": "PCG64",
    "numpy.random._philox": "Philox",
    "numpy.random.bit_generator": "SeedSequence",
}

# Classes: objects of them are made and get their state.
MADE = {
    "builtins": "object int float str bool list dict tuple",
    "torch.nn.modules.activation": (
        "Threshold ReLU RReLU Hardtanh ReLU6 Sigmoid Hardsigmoid Tanh SiLU Mish Hardswish ELU CELU SELU GLU GELU"
        " Hardshrink LeakyReLU LogSigmoid Softplus Softshrink MultiheadAttention PReLU Softsign Tanhshrink Softmin"
        " Softmax Softmax2d LogSoftmax"
    ),
    "torch.nn.modules.adaptive": "AdaptiveLogSoftmaxWithLoss",
    "torch.nn.modules.batchnorm": (
        "BatchNorm1d LazyBatchNorm1d BatchNorm2d LazyBatchNorm2d BatchNorm3d LazyBatchNorm3d SyncBatchNorm"
    ),
    "torch.nn.modules.channelshuffle": "ChannelShuffle",
    "torch.nn.modules.container": "Container Sequential ModuleList ModuleDict ParameterList ParameterDict",
    "torch.nn.modules.conv": (
        "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d LazyConv2d LazyConv3d"
        " LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d"
    ),
    "torch.nn.modules.distance": "PairwiseDistance CosineSimilarity",
    "torch.nn.modules.dropout": "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout",
    "torch.nn.modules.flatten": "Flatten Unflatten",
    "torch.nn.modules.fold": "Fold Unfold",
    "torch.nn.modules.instancenorm": (
        "InstanceNorm1d LazyInstanceNorm1d InstanceNorm2d LazyInstanceNorm2d InstanceNorm3d LazyInstanceNorm3d"
    ),
    "torch.nn.modules.linear": "Identity Linear NonDynamicallyQuantizableLinear _LinearWithBias Bilinear LazyLinear",
    "torch.nn.modules.loss": (
        "L1Loss NLLLoss NLLLoss2d PoissonNLLLoss GaussianNLLLoss KLDivLoss MSELoss BCELoss BCEWithLogitsLoss"
        " HingeEmbeddingLoss MultiLabelMarginLoss SmoothL1Loss HuberLoss SoftMarginLoss CrossEntropyLoss"
        " MultiLabelSoftMarginLoss CosineEmbeddingLoss MarginRankingLoss MultiMarginLoss TripletMarginLoss"
        " TripletMarginWithDistanceLoss CTCLoss"
    ),
    "torch.nn.modules.module": "Module",
    "torch.nn.modules.normalization": "LocalResponseNorm CrossMapLRN2d LayerNorm GroupNorm RMSNorm",
    "torch.nn.modules.padding": (
        "CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d"
        " ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d ZeroPad1d ZeroPad2d"
        " ZeroPad3d"
    ),
    "torch.nn.modules.pixelshuffle": "PixelShuffle PixelUnshuffle",
    "torch.nn.modules.pooling": (
        "MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d AvgPool1d AvgPool2d AvgPool3d"
        " FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d LPPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d"
        " AdaptiveMaxPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d"
    ),
    "torch.nn.modules.rnn": "RNN LSTM GRU RNNCell LSTMCell GRUCell",
    "torch.nn.modules.sparse": "Embedding EmbeddingBag",
    "torch.nn.modules.transformer": (
        "Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer TransformerDecoderLayer"
    ),
    "torch.nn.modules.upsampling": "Upsample UpsamplingNearest2d UpsamplingBilinear2d",
    "torch.nn.utils.parametrize": "ParametrizationList",
    "torch.nn.utils.parametrizations": "_Orthogonal _WeightNorm _SpectralNorm",
    "torch.nn.utils.weight_norm": "WeightNorm",
    "torch.nn.utils.spectral_norm": "SpectralNorm SpectralNormLoadStateDictPreHook SpectralNormStateDictHook",
    "torch.nn.parallel.data_parallel": "DataParallel",
    "torch.nn.parallel.distributed": "DistributedDataParallel",
    "torch.optim._adafactor": "Adafactor",
    "torch.optim._muon": "Muon",
    "torch.optim.adadelta": "Adadelta",
    "torch.optim.adagrad": "Adagrad",
    "torch.optim.adam": "Adam",
    "torch.optim.adamax": "Adamax",
    "torch.optim.adamw": "AdamW",
    "torch.optim.asgd": "ASGD",
    "torch.optim.lbfgs": "LBFGS",
    "torch.optim.nadam": "NAdam",
    "torch.optim.optimizer": "_RequiredParameter",
    "torch.optim.radam": "RAdam",
    "torch.optim.rmsprop": "RMSprop",
    "torch.optim.rprop": "Rprop",
    "torch.optim.sgd": "SGD",
    "torch.optim.sparse_adam": "SparseAdam",
    "torch.optim.swa_utils": "AveragedModel SWALR",
    "torch.optim.lr_scheduler": (
        "LRScheduler _LRScheduler LambdaLR MultiplicativeLR StepLR MultiStepLR ConstantLR LinearLR ExponentialLR"
        " SequentialLR PolynomialLR CosineAnnealingLR ChainedScheduler ReduceLROnPlateau CyclicLR"
        " CosineAnnealingWarmRestarts OneCycleLR"
    ),
    "torch.amp.grad_scaler": "GradScaler",
    "torch.cuda.amp.grad_scaler": "GradScaler",
    "torch.distributed.checkpoint.metadata": (
        "ChunkStorageMetadata TensorProperties TensorStorageMetadata BytesStorageMetadata StorageMeta Metadata"
        " MetadataIndex"
    ),
    "torch.distributed.checkpoint.filesystem": "_StorageInfo _StoragePrefix",
    "torch.distributed._shard.sharded_tensor.metadata": "TensorProperties ShardedTensorMetadata",
    "torch.distributed._shard.metadata": "ShardMetadata",
    "torch.distributed._tensor.placement_types": "DTensorSpec TensorMeta Shard Replicate Partial _Partial",
    "torch.distributed.tensor._dtensor_spec": "DTensorSpec TensorMeta ShardOrderEntry",
    "torch.distributed.tensor.placement_types": "Shard _StridedShard Replicate Partial",
    "torch.distributed.device_mesh": "DeviceMesh",
    "transformers.training_args": "TrainingArguments",
    "transformers.training_args_seq2seq": "Seq2SeqTrainingArguments",
    "transformers.trainer_pt_utils": "AcceleratorConfig",
    "transformers.trainer_callback": "TrainerState TrainerControl",
    "transformers.integrations.deepspeed": "HfDeepSpeedConfig HfTrainerDeepSpeedConfig",
    "transformers.deepspeed": "HfTrainerDeepSpeedConfig",
    "transformers.generation.configuration_utils": "GenerationConfig CompileConfig",
    "transformers.configuration_utils": "PretrainedConfig PreTrainedConfig",
    "transformers.utils.quantization_config": "BitsAndBytesConfig GPTQConfig AwqConfig",
    "transformers.tokenization_utils_base": "BatchEncoding",
    "transformers.models.bert.configuration_bert": "BertConfig",
    "transformers.models.roberta.configuration_roberta": "RobertaConfig",
    "transformers.models.distilbert.configuration_distilbert": "DistilBertConfig",
    "transformers.models.deberta_v2.configuration_deberta_v2": "DebertaV2Config",
    "transformers.models.gpt2.configuration_gpt2": "GPT2Config",
    "transformers.models.llama.configuration_llama": "LlamaConfig",
    "transformers.models.mistral.configuration_mistral": "MistralConfig",
    "transformers.models.mixtral.configuration_mixtral": "MixtralConfig",
    "transformers.models.qwen2.configuration_qwen2": "Qwen2Config",
    "transformers.models.qwen3.configuration_qwen3": "Qwen3Config",
    "transformers.models.gemma.configuration_gemma": "GemmaConfig",
    "transformers.models.gemma2.configuration_gemma2": "Gemma2Config",
    "transformers.models.phi3.configuration_phi3": "Phi3Config",
    "transformers.models.opt.configuration_opt": "OPTConfig",
    "transformers.models.t5.configuration_t5": "T5Config",
    "transformers.models.bart.configuration_bart": "BartConfig",
    "transformers.models.vit.configuration_vit": "ViTConfig",
    "transformers.models.clip.configuration_clip": "CLIPConfig CLIPTextConfig CLIPVisionConfig",
    "transformers.models.whisper.configuration_whisper": "WhisperConfig",
    "transformers.models.wav2vec2.configuration_wav2vec2": "Wav2Vec2Config",
    "trl.trainer.sft_config": "SFTConfig",
    "trl.trainer.dpo_config": "DPOConfig",
    "trl.trainer.grpo_config": "GRPOConfig",
    "trl.trainer.reward_config": "RewardConfig",
    "accelerate.state": "PartialState AcceleratorState GradientState",
    "accelerate.utils.dataclasses": (
        "DeepSpeedPlugin FullyShardedDataParallelPlugin GradientAccumulationPlugin TorchDynamoPlugin"
        " DataLoaderConfiguration ProjectConfiguration GradScalerKwargs AutocastKwargs DistributedDataParallelKwargs"
    ),
    "peft.tuners.lora.config": "LoraConfig LoraRuntimeConfig LoftQConfig EvaConfig CordaConfig",
    "lightning.pytorch.trainer.states": "TrainerState",
    "pytorch_lightning.trainer.states": "TrainerState",
    "lightning.fabric.utilities.data": _ATTRIBUTES,
    "lightning.pytorch.utilities.parsing": _ATTRIBUTES,
    "lightning_fabric.utilities.data": _ATTRIBUTES,
    "pytorch_lightning.utilities.parsing": _ATTRIBUTES,
    "mmengine.logging.history_buffer": "HistoryBuffer",
    "mmengine.config.config": "Config ConfigDict",
    "addict.addict": "Dict",
    "omegaconf.dictconfig": "DictConfig",
    "omegaconf.listconfig": "ListConfig",
    "omegaconf.base": "Metadata ContainerMetadata",
    "omegaconf.nodes": "AnyNode StringNode IntegerNode FloatNode BooleanNode BytesNode PathNode EnumNode",
}

# Functions and classes that may be called with plain data, or as `rebuilt` says.
CALLED = {
    "builtins": "set frozenset bytearray bytes complex slice range getattr",
    "_codecs": "encode",
    "functools": "partial",
    "copyreg": "_reconstructor __newobj__ __newobj_ex__",
    "collections": "OrderedDict defaultdict deque Counter",
    "argparse": "Namespace",
    "types": "SimpleNamespace",
    "datetime": "datetime date time timedelta timezone",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "uuid": "UUID",
    "pathlib": "PosixPath PurePosixPath PureWindowsPath WindowsPath",
    "pathlib._local": "PosixPath PurePosixPath PureWindowsPath WindowsPath",
    "random": "Random",
    "torch": "Size device Generator",
    "torch.nn.parameter": "Parameter Buffer UninitializedParameter UninitializedBuffer",
    "torch._utils": (
        "_rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_parameter _rebuild_parameter_with_state"
        " _rebuild_sparse_tensor _rebuild_sparse_csr_tensor _rebuild_qtensor _rebuild_meta_tensor_no_storage"
        " _rebuild_nested_tensor _rebuild_wrapper_subclass _rebuild_device_tensor_from_numpy"
        " _rebuild_device_tensor_from_cpu_tensor"
    ),
    "torch._tensor": "_rebuild_from_type _rebuild_from_type_v2",
    "torch.serialization": "_get_layout",
    "torch.torch_version": "TorchVersion",
    "torch._C": "Generator",
    "numpy": "dtype",
    "numpy.core.multiarray": "_reconstruct scalar",
    "numpy._core.multiarray": "_reconstruct scalar",
    "numpy.core.numeric": "_frombuffer",
    "numpy._core.numeric": "_frombuffer",
    "numpy.dtypes": _NUMPY_DTYPES,
    "numpy.random._pickle": "__randomstate_ctor __generator_ctor __bit_generator_ctor",
    "numpy.random.bit_generator": "__pyx_unpickle_SeedSequence",
}

# Enums: they are called with one plain value, or a member of them is named.
ENUMS = {
    "torch.amp.grad_scaler": "OptState",
    "torch.cuda.amp.grad_scaler": "OptState",
    "torch.distributed.checkpoint.metadata": "_MEM_FORMAT_ENCODING",
    "torch.distributed._shard.sharded_tensor.metadata": "MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.filesystem": "SerializationFormat",
    "transformers.trainer_utils": (
        "IntervalStrategy EvaluationStrategy SaveStrategy HubStrategy SchedulerType FSDPOption"
    ),
    "transformers.training_args": "OptimizerNames ParallelMode",
    "transformers.debug_utils": "DebugOption",
    "transformers.utils.quantization_config": "QuantizationMethod",
    "accelerate.utils.dataclasses": (
        "DistributedType DynamoBackend PrecisionType RNGType LoggerType ComputeEnvironment FP8BackendType"
    ),
    "peft.utils.peft_types": "PeftType TaskType",
    "lightning.pytorch.trainer.states": "TrainerFn TrainerStatus RunningStage",
    "pytorch_lightning.trainer.states": "TrainerFn TrainerStatus RunningStage",
    "omegaconf.base": "SCMode",
}
