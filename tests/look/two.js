/* two.js - a page of two networks. In the second one all outputs read the same hidden unit, so that they share its two eigenvectors. */
const { nothing_broke_out, right_to_left_is_isolated, ...ofThis } = everyPage;
const compare = tn.page.sections.find(section => section.type === "compare");
whenFilled({
    ...ofThis,
    /* The cosine of all outputs together, from those of each. */
    agreement() {
        const dot = compare.rows.reduce((sum, row) => sum + row.similarity * row.norm_a * row.norm_b, 0);
        const norm = key => Math.sqrt(compare.rows.reduce((sum, row) => sum + row[key] ** 2, 0));
        const [cosine, unrelated] = all("#learnt .findings li:first-child .num").map(number => Number(number.dataset.value));
        near("two: cosine", cosine, dot / norm("norm_a") / norm("norm_b"), 1e-9);
        check("two: of shuffled weights", unrelated > 0 && unrelated < 0.5, unrelated);
        const largest = key => compare.spectra.reduce((sum, one) => sum + tn.largest(tn.array(one[key])), 0) / 10;
        const [first, second] = all("#learnt .findings li:nth-child(2) .num").map(number => Number(number.dataset.value));
        const both = [largest("a"), largest("b")].sort((x, y) => y - x);
        near("two: the larger eigenvalues", first, both[0]);
        near("two: the smaller ones", second, both[1]);
        check("two: how to know how well", one("#learnt .findings").textContent.includes("--labels"), "it does not say so");
    },
    /* Each model has one name, in the legend, in the list of sections and in the live part. */
    names() {
        const [a, b] = [compare.a, compare.b], links = all("#contents a").map(link => link.textContent);
        for (const name of [`Spectra of ${a}`, `Eigenvectors of ${a}`, `Eigenvectors of ${b}`])
            check(`two: a section ${name}`, links.includes(name), links.join());
        for (const place of ["#learnt .keys", "#live .two", "#compare .versus", "#card thead"])
            equal(`two: names in ${place}`, all(".key", one(place)).map(key => key.textContent).join(), `${a},${b}`);
        check("two: the input is explained", one("#live .beside-pad").textContent.includes(`in ${a}.`),
            one("#live .beside-pad").textContent);
    },
    /* Models have colours of their own, which are not those of signs. */
    colours() {
        const ink = (element, what = "color") => getComputedStyle(element)[what];
        const probe = name => { const span = tn.h("span", { style: `color: var(--${name})` }); document.body.append(span);
            const colour = ink(span); span.remove(); return colour; };
        const models = ["model-1", "model-2"].map(probe);
        equal("two: colours apart", new Set([...models, probe("above"), probe("below"), probe("ink")]).size, 5);
        all("#live .answer-of").forEach((place, i) => equal(`two: bars of model ${i}`, ink(one(".bars .best .track i", place),
            "backgroundColor"), models[i]));
        all("#learnt .class .of-model:not(.none)").forEach((place, i) => equal(`two: card of model ${i % 2}`, ink(place,
            "borderLeftColor"), models[i % 2]));
    },
    shared() {
        one("#eigen .toggle").click();
        const of = all("#learnt .shared").filter(line => line.textContent.startsWith(`One eigenvector of ${compare.b} `));
        equal("two: shared eigenvectors", of.length, 2);
        for (const line of of) equal("two: by all outputs", all("bdi", line).length, 11);
        one("#eigen .toggle").click();
    },
    /* Contributions add up to the score, in both, also without an eigenvector. */
    contributions() {
        const places = all("#live .answer-of"), sums = place => {
            const [scores, parts] = all(".bars", place), logit = Number(all("data", one('[aria-pressed="true"]', scores)
                .closest("tr"))[1].value);
            return [Number(all("data", parts).pop().value), logit];
        };
        places.forEach((place, i) => near(`two: sum of contributions of model ${i}`, ...sums(place), 1e-5));
        const whole = sums(places[1])[1];
        one(".ablate", places[1]).click();
        check("two: an eigenvector is ablated", sums(places[1])[1] !== whole, whole);
        near("two: sum without it", ...sums(places[1]), 1e-5);
        tn.restore();
    },
});
