/* two.js - a page of two networks. In the second one all outputs read the same hidden unit, so that they share its two
   eigenvectors. */
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
    /* What the page says of a cosine beside that of shuffled weights, and of shares of right answers that it has or has not. */
    sentences() {
        const learnt = tn.page.sections.find(section => section.type === "learnt"), { cosine, unrelated, a, b } = compare;
        const items = changed => { const box = tn.h("div"); tn.sections.learnt({ ...learnt, ...changed }, box);
            return all(".findings li", box).map(item => item.textContent); };
        for (const [c, wanted] of [[0.95, "learnt nearly the same"], [0.5, "learnt the same in part"], [0.05, "little in common"],
            [-0.003, "little in common"], [0.001, "nothing in common beyond chance"], [-0.5, "in part learnt opposite things"],
            [-0.95, "have learnt opposite things"]]) {
            Object.assign(compare, { cosine: c, unrelated: 0.002 });
            check(`two: a cosine of ${c}`, items()[0].startsWith("The two ") && items()[0].split(".")[0].endsWith(wanted),
                items()[0]);
        }
        Object.assign(compare, { cosine, unrelated });
        const unknown = "so the page does not measure how often";
        equal("two: how well", items({ pictures: 3, right: [1, 0.5], layers: [1, 1] })[0],
            `Of 3 pictures ${a} 100 %, ${b} 50.0 % are named correctly.`);
        equal("two: how well, of one", items({ pictures: 3, right: [1, null], layers: [1, 2] })[0],
            `Of 3 pictures ${a} 100 % are named correctly. ${b} has several layers, ${unknown} it is right.`);
        equal("two: how well, of none", items({ pictures: 3, right: [null, null], layers: [2, 3] }).pop(),
            `${a} and ${b} have several layers, ${unknown} they are right.`);
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
        check("two: how alike they are", of.every(line => line.textContent.endsWith("with the one shown.")), of[0]?.textContent);
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
