# What the pages of `tn look` and `tn demo` are made of, as arrays of C. The programs within them are the library in
# WebAssembly; without clang for that they are empty.
build/look_assets.h: $(wildcard tools/tn/look/*) build/live.wasm
	@mkdir -p $(@D)
	sh tools/tn/look/embed.sh $@ look_template=tools/tn/look/page.html look_wasm=build/live.wasm
build/demo_assets.h: $(wildcard tools/tn/demo/*) tools/tn/look/embed.sh build/train.wasm
	@mkdir -p $(@D)
	sh tools/tn/look/embed.sh $@ demo_wasm=build/train.wasm demo_style=tools/tn/demo/lesson.css \
	    $(foreach name,lesson index xor digits,demo_$(name)=tools/tn/demo/$(name).js) \
	    demo_images=examples/data/digits-images-idx3-ubyte demo_labels=examples/data/digits-labels-idx1-ubyte
build/live.wasm: tools/tn/look/live.c $(wildcard tools/tn/look/*.inl)
build/train.wasm: tools/tn/demo/train.c
build/live.wasm build/train.wasm: tools/tn/look/wasm.h tools/tn/look/wasm.sh tensornet.h
	@mkdir -p $(@D)
	@sh tools/tn/look/wasm.sh --optional $(filter %.c,$^) $@
