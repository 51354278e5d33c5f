#!/usr/bin/env python3
"""The labs of the track flashinfer on a CPU: results that hold every item, the scripts of the documents, the pages; and
the glossary that all tracks' pages link to."""
from labs import *
from labs_named import check_named

# What each lab must tell: (process, hardware).
ITEMS = {
    "00_check_env": (["jit_ready", "jit_cache", "next_start", "compile_triggers", "never_and_always"], []),
    "01_test_kernels": (["correctness", "summary", "tolerance", "variant_selection", "cpu_selection"], []),
    "02_profile_prefill": (["online_softmax", "tiles", "work_distribution", "roles", "wave_quantisation", "wave_step",
                            "wave_model", "lengths"],
                           ["occupancy", "tensor_share", "hbm_share", "stalls", "roofline", "explanation"]),
    "03_profile_decode": (["split_k", "partial_outputs", "merge_lse", "split_rule", "split_choice", "given_splits",
                           "batches", "page_layout", "append", "page_size"],
                          ["bandwidth", "memory_share", "long_scoreboard", "occupancy", "roof", "explanation"]),
    "04_profile_rmsnorm": (["row_reduction", "vectorisation", "rows", "sizes", "fused_add", "bytes_saved"],
                           ["bandwidth", "copy_share", "occupancy", "roofline", "explanation"]),
    "05_profile_rope": (["in_place", "cos_sin_cache", "interleaved_half_split", "scaling", "scaling_in_words",
                         "joined_with_store", "sizes"],
                        ["bandwidth", "copy_share", "access_pattern", "occupancy", "roofline", "explanation"]),
    "06_jit_analysis": (["what_compiled", "parameters", "when", "how_long", "cached_where", "cold_warm", "key",
                         "invalidation"], []),
}
# Commands of the documents, to be run inside the track's folder, and what they must come to.
COMMANDS = {
    "python scripts/00_check_env.py": "00",
    "python scripts/01_test_kernels.py": "01",
    "python scripts/02_profile_prefill.py": "02",
    "python scripts/02_profile_prefill.py --sweep": "02 --sweep",
    "python scripts/03_profile_decode.py": "03",
    "python scripts/03_profile_decode.py --sweep": "03 --sweep",
    "python scripts/04_profile_rmsnorm.py": "04",
    "python scripts/05_profile_rope.py": "05",
    "python scripts/06_jit_analysis.py": "06",
    "python scripts/06_jit_analysis.py --cold": "06 --cold",
}

track = Track("flashinfer")


def result(name):
    """The result of a lab's quick form, which is run when first asked for."""
    if not os.path.exists(track.path(name + ".json")):
        r = track.script(f"python scripts/{name}.py --quick --no-predict")
        assert r.code == 0, f"{name}: exit {r.code}\n{r.text}{r.log}"
    return track.result(name)


def test_every_command_of_the_documents_starts_its_lab():
    track.means(COMMANDS)
    track.means({"./scripts/" + name: name[:2] for name in ITEMS})  # and the plain names


def test_an_option_that_the_labs_do_not_have_is_refused_by_name():
    track.refuses({"python scripts/02_profile_prefill.py --attention-backend flashinfer": "--attention-backend",
                   "python scripts/03_profile_decode.py --seq-len 4096": "--seq-len"})


def test_every_lab_tells_every_item_and_turns_a_knob():
    for name, (process, hardware) in ITEMS.items():
        lab = result(name)
        same((lab["schema"], lab["track"], lab["quick"]), ("vitrine.lab", "flashinfer", True), name)
        told(lab, process + hardware)
        checks_hold(lab)
        assert lab["predictions"], f"{name} predicts nothing"
        check_named("flashinfer", name, lab)
        assert lab["knobs"] or lab["items"].get("how_long", {}).get("missing"), f"{name} turns no knob"


def test_the_documents_shapes_are_among_those_measured():
    calls = cells(result("02_profile_prefill"), "lengths", "call")
    assert any(c.startswith("512 tokens, 32/") for c in calls), calls
    calls = cells(result("03_profile_decode"), "batches", "batch x KV")
    assert any(c.startswith("32 x 4096,") for c in calls), calls


def test_page_sizes_have_the_pages_and_lists_that_arithmetic_says():
    lab = result("03_profile_decode")
    sizes = [int(c) for c in cells(lab, "page_size", "page")]
    same((sizes[0], sizes[-1]), (1, 256), "page sizes")
    for size, pages in zip(sizes, cells(lab, "page_size", "pages")):
        same(int(pages), 4 * 2048 // size, f"pages of {size} tokens")


def test_an_h200_splits_one_sequence_and_not_thirty_two():
    lab = result("03_profile_decode")
    plans = list(zip(*(cells(lab, "split_choice", c)
                       for c in ("plan", "batch x KV", "chunks a sequence", "tokens a chunk", "pieces", "partial results"))))
    assert ("H200, modelled", "1 x 4096", "16", "256", "128", "532 KB") in plans, plans
    assert ("H200, modelled", "32 x 4096", "1", "4096", "256", "0 B") in plans, plans


def test_tables_and_drawings_fit_a_hundred_columns():
    for name in ITEMS:
        for key, item in result(name)["items"].items():
            for line in item.get("drawing", "").split("\n"):
                assert len(line) <= 96, (name, key, line)
            if "rows" in item:
                rows = [item["columns"]] + item["rows"]
                text = [[(c if isinstance(c, str) else c["text"]).lstrip(">") for c in row] for row in rows]
                width = sum(max(map(len, column)) for column in zip(*text)) + 2 * (len(text[0]) - 1)
                assert width <= 96, (name, key, width)


def test_a_norm_fused_with_its_addition_moves_four_passes_of_five():
    each = [float(c) for c in cells(result("04_profile_rmsnorm"), "fused_add", "bytes an element")]
    same([round(v) for v in each], [16, 20, 8], "bytes an element in fp32")
    saved = result("04_profile_rmsnorm")["items"]["bytes_saved"]
    assert abs(saved["value"] - 0.2) < 0.001, saved


def test_llama3_and_yarn_leave_fast_pairs_and_divide_slow_ones():
    lab = result("05_profile_rope")
    plain, llama3, yarn = ([float(c) for c in cells(lab, "scaling", n)] for n in ("plain", "llama3 x8", "yarn x8"))
    same((plain[0], plain[0]), (llama3[0], yarn[0]), "the fastest pair")
    for scaled in (llama3[-1], yarn[-1]):
        assert abs(scaled / plain[-1] - 8) < 0.01, (plain[-1], scaled)
    # by hand: wave length of pair i is 2 pi 500000^(2 i / 128)
    for pair, wave in zip(cells(lab, "scaling", "pair"), plain):
        want = 6.283185307 * 500000 ** (2 * int(pair) / 128)
        assert abs(wave / want - 1) < 1e-3, (pair, wave, want)


def test_on_an_h200_one_token_more_starts_another_wave():
    """The documents' shape lies just below a border: 512 tokens, 16 tiles of 128 rows, 8 KV heads on 132 SMs."""
    text = result("02_profile_prefill")["items"]["wave_model"]["text"]
    assert "512 tokens are 128 items, 0.97 waves; 513 tokens are 136 items, 1.03 waves" in text, text


def test_a_second_start_compiles_nothing_and_another_architecture_everything():
    lab = result("00_check_env")
    new = dict(zip(cells(lab, "compile_triggers", "what changes"), cells(lab, "compile_triggers", "new")))
    kernels = dict(zip(cells(lab, "compile_triggers", "what changes"), cells(lab, "compile_triggers", "kernels")))
    same(new["nothing: a second start"], "0")
    same(new["sm_80"], kernels["sm_80"], "all kernels of another architecture are new")
    assert 0 < int(new["--kv-dtype fp8"]) < int(kernels["--kv-dtype fp8"]), new
    said = lab["predictions"][0]  # often 0 of 0
    assert said["own"] != said["measured"] or said["grade"] != "off by more", said


def test_one_kernel_can_be_asked_for_and_an_unknown_one_is_refused():
    args = ["lab", "flashinfer", "01", "--quick", "--no-predict", "--results", os.path.join(scratch(), "one"), *model()]
    lab = ok(*args, "--kernel", "add_rmsnorm", "--json").json
    same(set(cells(lab, "correctness", "card")) - {""}, {"add_rmsnorm"})
    fails(2, ["--kernel warp", "rope_store"], *args, "--quiet", "--kernel", "warp")


def test_without_nvrtc_the_jit_lab_says_what_it_cannot_show():
    lab = ok("lab", "flashinfer", "06", "--quick", "--no-predict", "--json", "--results", os.path.join(scratch(), "two"),
             *model(), env={"VITRINE_NVRTC": "/nowhere/libnvrtc.so"}).json
    for key in ("what_compiled", "how_long", "cold_warm", "cached_where", "invalidation"):
        assert "/nowhere/libnvrtc.so" in lab["items"][key]["missing"], lab["items"][key]
    assert "FNV-1a" in lab["items"]["key"]["drawing"]


def test_the_jit_lab_leaves_the_users_cache_and_the_temporary_folder_as_they_are():
    tmp = os.path.join(scratch(), "tmp")
    os.makedirs(tmp, exist_ok=True)
    cache = os.path.join(CACHE, "cubin")
    before = sorted(os.listdir(cache)) if os.path.isdir(cache) else []
    ok("lab", "flashinfer", "06", "--quick", "--no-predict", "--json", "--results", os.path.join(scratch(), "three"),
       *model(), env={"TMPDIR": tmp})
    same(sorted(os.listdir(cache)) if os.path.isdir(cache) else [], before, "the user's cache")
    same(os.listdir(tmp), [], "the temporary folder")


def test_a_temporary_folder_that_is_not_there_is_an_error():
    r = run("lab", "flashinfer", "06", "--quick", "--no-predict", "--quiet", "--results", os.path.join(scratch(), "four"),
            *model(), env={"TMPDIR": "/nowhere"})
    if "missing" in r.text:
        skip("NVRTC is not installed")
    assert r.code != 0 and "/nowhere/vitrine-lab" in r.log, r.log


def test_a_result_that_cannot_be_left_is_an_error():
    folder = os.path.join(scratch(), "five")
    os.makedirs(os.path.join(folder, "flashinfer", "results", "local", "04_profile_rmsnorm.json", "in-the-way"))
    r = run("lab", "flashinfer", "04", "--quick", "--no-predict", "--quiet", "--results", folder, *model())
    assert r.code != 0 and "04_profile_rmsnorm.json" in r.log, (r.code, r.log)


# ---- pages ----

def test_every_lab_has_a_page_with_all_its_parts():
    check_pages("flashinfer", ITEMS)
    for page in pages("flashinfer"):
        assert "LAB flashinfer" in read(page), page


def test_links_of_the_pages_are_alive():
    check_links("flashinfer")


# ---- the glossary ----

def anchor(heading):
    """The anchor that renderers of Markdown make of a heading."""
    return re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")


def glossary():
    """{anchor: (term, explanation)}"""
    terms = {}
    for part in read("labs/GLOSSARY.md").split("\n### ")[1:]:
        term, text = part.split("\n", 1)
        assert anchor(term) not in terms, term
        terms[anchor(term)] = (term, text.strip())
    return terms


def test_every_link_to_the_glossary_finds_its_term():
    terms, seen = glossary(), 0
    for page in glob.glob("labs/**/*.md", recursive=True):
        for text, target in LINK.findall(read(page)):
            path, _, name = target.partition("#")
            inside = os.path.basename(page) == "GLOSSARY.md" and not path
            if not inside and os.path.basename(path) != "GLOSSARY.md":
                continue
            assert inside or os.path.exists(os.path.join(os.path.dirname(page), path)), (page, target)
            if name:
                seen += 1
                assert name in terms, f"{page}: the glossary has no term for [{text}]({target})"
    assert seen > 100, seen


def test_the_glossary_explains_each_term_in_two_sentences():
    terms = glossary()
    assert len(terms) >= 40, len(terms)
    for name in ("ttft", "itl", "prefill", "decode", "kv-cache", "page", "radix-tree", "roof", "occupancy", "wave",
                 "tail", "coalescing", "pdl", "cuda-graph", "lse", "split-k"):
        assert name in terms, name
    names = [term.lower() for term, _ in terms.values()]
    same(names, sorted(names), "terms in the order of the alphabet")
    for term, text in terms.values():
        sentences = re.findall(r"[^.]+(?:\.\d[^.]*)*\.(?=\s|$)", text.replace("\n", " "))
        same(len(sentences), 2, f"sentences about {term}: {text}")


if __name__ == "__main__":
    main(globals())
